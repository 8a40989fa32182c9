"""One HTML file with its style, its scripts and its data; it asks the network for nothing."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from wcdas.evaluation.table import percent
from wcdas.files import write_synced
from wcdas.groups import IN_WORDS
from wcdas.report.charts import DARK, LIGHT, Chart, counted, signed
from wcdas.report.figures import write_figures

TEMPLATES = Path(__file__).parent / "templates"
LIBRARY = "echarts.common.min.js"  # Apache ECharts 6.1.0, Apache-2.0, as published on npm
SCRIPTS = (LIBRARY, "page.js")


def write_document(
    path: Path,
    template: str,
    charts: Mapping[str, Chart],
    data: Mapping[str, Any],
    figures: bool,
    **content: Any,
) -> None:
    """Write a page, and its charts as files beside it where somebody asks for them.

    Args:
        path: the page.
        template: its file in templates/.
        charts: by name; the script draws them where the template has their figures.
        data: what the script takes beside the charts.
        figures: whether to write figures/.
        content: what the template takes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if figures:
        write_figures(charts.values(), path.parent / "figures")
    drawn: dict[str, Any] = {
        "palettes": {"light": LIGHT, "dark": DARK},
        "charts": {name: asdict(chart) for name, chart in charts.items()},
    }
    page = _environment().get_template(template)
    text = page.render(content, charts=charts, data=drawn | dict(data), figures=figures)
    write_synced(path, text.encode("utf-8", errors="replace"))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.filters |= {"percent": percent, "counted": counted, "thousands": "{:,}".format}
    made.filters["change"] = _change
    made.globals |= {"file": _file, "scripts": SCRIPTS, "policy": _policy(), "groups": IN_WORDS}
    return made


def _change(value: float | None, before: float | None, more_is_better: bool) -> tuple[str, str]:
    """Points between two accuracies, and whether the style sheet has them good or bad."""
    if value is None or before is None:
        return "–", ""
    points = 100 * (value - before)
    if not float(f"{points:.1f}"):
        return "0.0", ""
    return signed(points), "good" if (points > 0) == more_is_better else "bad"


@cache
def _file(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text("utf-8"))


def _policy() -> str:
    """Only the page's scripts may run, and nothing may be loaded."""
    digests = (hashlib.sha256(_file(name).encode()).digest() for name in SCRIPTS)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )

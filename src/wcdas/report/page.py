"""The page of one run, and the page that compares several.

Each is one HTML file with its style, its scripts and its data; it asks the network for nothing.
"""

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from wcdas.evaluation.calibration import FEWEST, was_fitted
from wcdas.evaluation.table import percent
from wcdas.files import write_synced
from wcdas.groups import FEW, IN_WORDS
from wcdas.heads import HEADS
from wcdas.heads.angular import ConcentrationHead
from wcdas.report.advice import advise
from wcdas.report.baseline import beside_told, differing, find_baseline
from wcdas.report.charts import (
    DARK,
    LIGHT,
    Chart,
    compared_charts,
    counted,
    percents,
    rounded,
    run_charts,
    signed,
)
from wcdas.report.facts import MEASURED, facts_of
from wcdas.report.figures import write_figures
from wcdas.report.record import Record
from wcdas.report.thinning import shown_classes, thinned, thinned_columns

TEMPLATES = Path(__file__).parent / "templates"
LIBRARY = "echarts.common.min.js"  # Apache ECharts 6.1.0, Apache-2.0, as published on npm
SCRIPTS = (LIBRARY, "page.js")


def write_page(path: Path, record: Record, figures: bool) -> None:
    """Write the page of a run, beside its linear softmax baseline if there is one."""
    baseline = find_baseline(record)
    beside = {"softmax (linear)": baseline} if baseline else {}
    settings = {key: value for key, value in record.run.items() if key != "info"}
    names, shown = record.class_names, shown_classes(record)
    columns = thinned_columns(_first_columns(record) + _run_columns(record), shown, names)
    map_rows = record.measured["map"]["rows"] if record.measured["map"] else []
    _write(
        path,
        "run.html",
        thinned(run_charts(record), shown),
        {"runs": 1, "classes": [names[c] for c in shown], "columns": columns},
        figures,
        shown=len(shown),
        title=f"{record.data} · {record.method}",
        warnings=record.warnings,
        runs=beside | {record.method: record},
        record=record,
        baseline=baseline,
        beside=beside_told(record, baseline) if baseline else "",
        advice=advise(facts_of(record, baseline)),
        lowest=_lowest_class(record),
        mistaken_on_map=sum(true != predicted for *_, true, predicted in map_rows),
        heads_with_rho=[
            name for name, head in HEADS.items() if issubclass(head, ConcentrationHead)
        ],
        few=FEW,
        fewest=FEWEST,
        was_fitted=was_fitted,
        settings=tomli_w.dumps(settings),
    )


def write_comparison(path: Path, records: Sequence[Record], figures: bool) -> None:
    """Write one page about several runs, the first of which the others are compared with."""
    runs = told_apart(records)
    classes = [(record.class_names, record.class_counts) for record in records]
    same_classes = all(one == classes[0] for one in classes)
    names, shown = records[0].class_names, shown_classes(records[0])
    columns = _first_columns(records[0]) + (_compared_columns(runs) if same_classes else [])
    _write(
        path,
        "comparison.html",
        thinned(compared_charts(runs, same_classes), shown),
        {
            "runs": len(runs),
            "classes": [names[c] for c in shown],
            "columns": thinned_columns(columns, shown, names),
        },
        figures,
        shown=len(shown),
        title=f"{' · '.join(dict.fromkeys(r.data for r in records))}: {', '.join(runs)}",
        warnings=[f"{name}: {text}" for name, run in runs.items() for text in run.warnings],
        runs=runs,
        same_data=len({record.run["info"]["fingerprint"] for record in records}) == 1,
        same_classes=same_classes,
        settings=differing(records),
        this_page=f"wcdas report {shlex.join(str(record.folder) for record in records)}",
    )


def told_apart(records: Sequence[Record]) -> dict[str, Record]:
    """Return the runs by method; with seeds, data or folders where these are not enough."""
    candidates = (
        [r.method for r in records],
        [f"{r.method}, seed {r.seed}" for r in records],
        [f"{r.method}, {r.data}" for r in records],
        [r.folder.name for r in records],
        [str(r.folder) for r in records],
    )
    labels = next(labels for labels in candidates if len(set(labels)) == len(labels))
    return dict(zip(labels, records, strict=True))


def _lowest_class(record: Record) -> tuple[float, str] | None:
    """The accuracy and the name of the worst of the classes that have enough test images."""
    tested = zip(record.accuracy, record.class_names, record.test_counts, strict=True)
    measured = [(a, name) for a, name, n in tested if a is not None and n >= MEASURED]
    return min(measured, default=None)


def _first_columns(record: Record) -> list[dict[str, Any]]:
    """The table of classes begins with what every page knows of them."""
    return [
        _column("class", "text", record.class_names),
        _column("group", "text", record.class_groups),
        _column("training images", "count", record.class_counts),
        _column("test images", "count", record.test_counts),
    ]


def _run_columns(record: Record) -> list[dict[str, Any]]:
    rows, rho = record.metrics["per_class"], record.measured["rho"]
    index = {row["class"]: i for i, row in enumerate(rows)}
    columns = [
        _column("accuracy %", "percent", percents(record.accuracy)),
        _column("precision %", "percent", percents([row["precision"] for row in rows])),
    ]
    if rho is not None:
        columns.append(_column("ρ", "rho", [rounded(value) for value in rho]))
    taken = [index.get(row["most_confused_with"]) for row in rows]
    return [*columns, _column("most taken for", "class", taken)]


def _compared_columns(runs: Mapping[str, Record]) -> list[dict[str, Any]]:
    """The accuracies beside each other, then how far each run is from the first."""
    accuracies = {label: percents(run.accuracy) for label, run in runs.items()}
    columns = [_column(f"{label} %", "percent", values) for label, values in accuracies.items()]
    first, *others = accuracies
    for label in others:
        pairs = zip(accuracies[first], accuracies[label], strict=True)
        changes = [None if a is None or b is None else rounded(b - a) for a, b in pairs]
        columns.append(_column(f"{label} − {first}", "change", changes))
    return columns


def _column(title: str, kind: str, values: Sequence[Any]) -> dict[str, Any]:
    return {"title": title, "kind": kind, "values": values}


def _write(
    path: Path,
    template: str,
    charts: Mapping[str, Chart],
    data: Mapping[str, Any],
    figures: bool,
    **content: Any,
) -> None:
    """Write a page, and its charts as files beside it where somebody asks for them.

    The script takes `data` and draws the charts where the template has their figures; `content` is
    the template's.
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

"""One HTML file with its style, its scripts and its data; it asks the network for nothing."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from wcdas.files import write_synced
from wcdas.report.chart import DARK, LIGHT, Chart
from wcdas.report.html import warning_box

HERE = Path(__file__).parent
LIBRARY = "echarts.common.min.js"  # Apache ECharts 6.1.0, Apache-2.0, as published on npm
NOTICE = (
    "This page holds Apache ECharts 6.1.0. Copyright 2017-2026 The Apache Software Foundation. "
    "Licensed under the Apache License, Version 2.0. This product includes software developed at "
    "The Apache Software Foundation (https://www.apache.org/)."
)
KEYS = "In a chart the arrow keys move from point to point, Escape lets go."


def write_document(
    path: Path,
    title: str,
    introduction: str,
    sections: Mapping[str, tuple[str, str]],
    charts: Iterable[Chart],
    data: Mapping[str, Any],
    warnings: Sequence[str] = (),
) -> None:
    """`sections` are HTML by their id, each with what the navigation calls it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "palettes": {"light": LIGHT, "dark": DARK},
        "charts": {chart.name: chart.as_json() for chart in charts},
    } | dict(data)
    links = "".join(
        f'<li><a href="#{name}">{escape(title)}</a></li>' for name, (title, _) in sections.items()
    )
    scripts = [_file(LIBRARY), _file("page.js")]
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">
<title>{escape(title)}</title>
<style>
{_file("page.css")}</style>
</head>
<body>
<!-- {NOTICE} -->
<a class="skip" href="#main">To the content</a>
<header>
<h1>{escape(title)}</h1>
<button type="button" id="theme" aria-live="polite">Theme</button>
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="main">
{warning_box(warnings)}
<p>{escape(introduction)}</p>
<noscript><p>Charts and the table of classes need JavaScript; the same charts are in figures/.</p>
</noscript>
{chr(10).join(body for _, body in sections.values())}
</main>
<footer class="soft"><p id="keys">{KEYS}</p><p>{escape(NOTICE)}</p></footer>
<div id="spoken" class="hidden" aria-live="polite"></div>
<script type="application/json" id="data">{_embedded(content)}</script>
{"".join(f"<script>{script}</script>{chr(10)}" for script in scripts)}</body>
</html>
"""
    write_synced(path, page.encode("utf-8", errors="replace"))


def _policy(scripts: Iterable[str]) -> str:
    """Only these scripts may run, and nothing may be loaded."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _file(name: str) -> str:
    return (HERE / name).read_text("utf-8")

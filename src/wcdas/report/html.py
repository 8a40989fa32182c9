"""Pieces of HTML; whatever comes from data is escaped here."""

from collections.abc import Iterator, Sequence
from html import escape

from wcdas.report.chart import Chart

Cell = str | tuple[str, str]  # text, or text and the class of its cell


def section(name: str, title: str, body: Sequence[str]) -> str:
    inner = "\n".join(body)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{escape(title)}</h2>\n{inner}\n</section>'
    )


def paragraph(text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>"


def warning_box(texts: Sequence[str]) -> str:
    """What stands above everything else; nothing without a text."""
    if not texts:
        return ""
    body = "".join(map(paragraph, texts))
    return f'<aside class="warning" aria-label="Warning"><h2>Warning</h2>{body}</aside>'


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A small table whose first column names the rows."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in columns)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(map(_row, rows))}</tbody></table></div>"
    )


def chart_figure(chart: Chart, figures: bool = True) -> str:
    """The place of a chart, with what it shows in words; the script draws it."""
    name, title = escape(chart.name), escape(chart.title)
    links = (
        f' <a href="figures/{name}.svg">SVG</a> · <a href="figures/{name}.png">PNG</a>'
        if figures
        else ""
    )
    return (
        f'<figure class="chart"><div class="plot" id="chart-{name}" data-chart="{name}" '
        f'tabindex="0" role="group" aria-roledescription="chart" aria-label="{title}" '
        f'aria-describedby="told-{name} keys"></div>'
        f'<figcaption><span id="told-{name}">{escape(chart.told)}</span>'
        f'<span class="files">{links}</span></figcaption>'
        f'<details class="numbers" data-numbers="{name}"><summary>Numbers of the chart '
        f'“{title}”</summary><div class="wide" tabindex="0" role="region" '
        f'aria-label="Numbers of {title}"></div></details></figure>'
    )


def class_table(name: str, caption: str) -> str:
    """The place of a table with search and sorting; the script fills it."""
    return (
        f'<div class="classes" data-table="{name}">'
        f'<label for="{name}-search">Search a class</label>'
        f'<input type="search" id="{name}-search" autocomplete="off" spellcheck="false">'
        f'<p class="soft" role="status"></p>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption><thead></thead><tbody></tbody></table></div>"
        f'<p class="pages"><button type="button" data-step="-1">Previous</button> '
        f'<span></span> <button type="button" data-step="1">Next</button></p></div>'
    )


def command(text: str) -> str:
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def bullets(items: Sequence[str]) -> Iterator[str]:
    """Items that are HTML already."""
    yield "<ul>"
    yield from (f"<li>{item}</li>" for item in items)
    yield "</ul>"


def _row(cells: Sequence[Cell]) -> str:
    first, *rest = cells
    return f'<tr><th scope="row">{_text(first)}</th>{"".join(map(_cell, rest))}</tr>'


def _text(cell: Cell) -> str:
    return escape(cell if isinstance(cell, str) else cell[0])


def _cell(cell: Cell) -> str:
    kind = "" if isinstance(cell, str) else f' class="{cell[1]}"'
    return f"<td{kind}>{_text(cell)}</td>"

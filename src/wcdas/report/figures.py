"""The charts as PNG and SVG files."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from wcdas.report.chart import LIGHT, Axis, Chart, Series
from wcdas.report.style import MARKERS, draw

SIZE = (6.4, 4.0)
MANY_DOTS = 1_000  # drawn as one picture inside an SVG
LEGEND = 12


def write_figures(charts: Iterable[Chart], folder: Path) -> None:
    """`folder`/NAME.svg and .png of each chart."""
    for chart in charts:
        draw(folder, chart.name, SIZE, partial(paint, chart=chart))


def paint(figure: Figure, chart: Chart) -> None:
    axes = figure.subplots()
    axes.set_title(chart.title)
    for series in chart.series:
        _paint_series(axes, series)
    _scale(axes, "x", chart.x)
    _scale(axes, "y", chart.y)
    if len(chart.marks) > 1:
        for at, name in chart.marks:
            axes.axvline(at, color="#888888", linewidth=0.8, linestyle=":")
            axes.annotate(
                _plain(name), (at, 1), (3, -2), ("data", "axes fraction"), "offset points",
                va="top", fontsize=8,
            )  # fmt: skip
    if 1 < len(chart.series) <= LEGEND:
        figure.legend(loc="outside lower center", ncols=3)


def _scale(axes: Axes, which: str, axis: Axis) -> None:
    if axis.log:
        axes.set(**{f"{which}scale": "log"})
        getattr(axes, f"{which}axis").set_major_formatter("{x:g}")
        getattr(axes, f"{which}axis").set_minor_formatter(NullFormatter())
    axes.set(**{f"{which}label": axis.label})
    if not axis.numbers:
        axes.set(**{f"{which}ticks": []})
    if axis.low is not None and not axis.log:
        high = axis.high if axis.high is not None else float(getattr(axes, f"get_{which}lim")()[1])
        margin = 0.02 * (high - axis.low)
        axes.set(**{f"{which}lim": (axis.low - margin, high + margin)})


def _paint_series(axes: Axes, series: Series) -> None:
    colour = LIGHT[series.colour % len(LIGHT)]
    marker = MARKERS[series.colour % len(MARKERS)]
    y = np.array([np.nan if value is None else value for value in series.y], dtype=np.float64)
    style = "--" if series.dashed else "-"
    if series.kind == "points":
        axes.plot(
            series.x, y, linestyle="", marker=marker, markersize=4 if len(y) < 300 else 2.5,
            color=colour, alpha=0.75, label=_plain(series.name), rasterized=len(y) > MANY_DOTS,
        )  # fmt: skip
    elif series.kind == "bars":
        width = 0.92 * (series.x[1] - series.x[0]) if len(series.x) > 1 else 1.0
        axes.bar(series.x, np.nan_to_num(y), width, color=colour, label=_plain(series.name))
    elif series.kind == "steps":
        axes.plot(
            series.x, y, style, color=colour, drawstyle="steps-mid", label=_plain(series.name)
        )
    else:
        axes.plot(series.x, y, style, color=colour, label=_plain(series.name))


def _plain(text: str) -> str:
    """No mathematics in a class name; a leading underscore would hide it from the legend."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return ("\u200b" if shown.startswith("_") else "") + shown.replace("$", r"\$")

"""One look for all figures, told apart without colour and by colour-blind readers; the charts of a
page as PNG and SVG files."""

import threading
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wcdas.report.charts import LIGHT, Axis, Chart, Series

if TYPE_CHECKING:  # slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, ordered so that neighbours differ in lightness too.
COLOURS = ("#000000", "#D55E00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
SEQUENTIAL = "cividis"  # lightness grows with the value
DIVERGING = "PuOr"  # both ends dark, zero light
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "lines.linewidth": 1.6,
    "figure.facecolor": "white",
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
    "savefig.dpi": 200,
    "svg.hashsalt": "wcdas",  # the same figure is the same file
}
SIZE = (6.4, 4.0)  # of a chart, in inches
MANY_DOTS = 1_000  # drawn as one picture inside an SVG
LEGEND = 12  # series that it has room for

_ONE_AT_A_TIME = threading.Lock()  # Matplotlib's settings and Python's warnings are the process's


def draw(
    folder: Path, name: str, size: tuple[float, float], paint: Callable[["Figure"], None]
) -> Path:
    """Paint a figure of `size` inches; leaves name.svg and name.png, and returns the first."""
    # Slow to import.
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    look = STYLE | {"axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=LINES)}
    with _ONE_AT_A_TIME, mpl.rc_context(look), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        figure.savefig(path, metadata={"Date": None})
        figure.set_layout_engine("none")  # it is laid out
        figure.savefig(path.with_suffix(".png"), pil_kwargs={"compress_level": 3})
    return path


def write_figures(charts: Iterable[Chart], folder: Path) -> None:
    """Write `folder`/NAME.svg and .png of each chart."""
    for chart in charts:
        draw(folder, chart.name, SIZE, partial(_paint, chart=chart))


def _paint(figure: "Figure", chart: Chart) -> None:
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


def _paint_series(axes: "Axes", series: Series) -> None:
    y = np.array([np.nan if value is None else value for value in series.y], dtype=np.float64)
    look: dict[str, Any] = {
        "color": LIGHT[series.colour % len(LIGHT)],
        "label": _plain(series.name),
    }
    if series.kind == "points":
        look |= {"marker": MARKERS[series.colour % len(MARKERS)], "linestyle": "", "alpha": 0.75}
        size = 4 if len(y) < 300 else 2.5
        axes.plot(series.x, y, markersize=size, rasterized=len(y) > MANY_DOTS, **look)
    elif series.kind == "bars":
        width = 0.92 * (series.x[1] - series.x[0]) if len(series.x) > 1 else 1.0
        axes.bar(series.x, np.nan_to_num(y), width, **look)
    else:
        steps = "steps-mid" if series.kind == "steps" else "default"
        axes.plot(series.x, y, "--" if series.dashed else "-", drawstyle=steps, **look)


def _scale(axes: "Axes", which: str, axis: Axis) -> None:
    if axis.log:
        axes.set(**{f"{which}scale": "log"})
        getattr(axes, f"{which}axis").set_major_formatter("{x:g}")
        getattr(axes, f"{which}axis").set_minor_formatter("")
    axes.set(**{f"{which}label": axis.label})
    if not axis.numbers:
        axes.set(**{f"{which}ticks": []})
    if axis.low is not None and not axis.log:
        high = axis.high if axis.high is not None else float(getattr(axes, f"get_{which}lim")()[1])
        margin = 0.02 * (high - axis.low)
        axes.set(**{f"{which}lim": (axis.low - margin, high + margin)})


def _plain(text: str) -> str:
    """No mathematics in a class name; a leading underscore would hide it from the legend."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return ("\u200b" if shown.startswith("_") else "") + shown.replace("$", r"\$")

"""One look for all figures: told apart without colour, and by colour-blind readers."""

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    look = STYLE | {"axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=LINES)}
    path = folder / f"{name}.svg"
    with (
        _ONE_AT_A_TIME,
        mpl.rc_context(look),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        figure.savefig(path, metadata={"Date": None})
        figure.set_layout_engine("none")  # it is laid out
        figure.savefig(path.with_suffix(".png"), pil_kwargs={"compress_level": 3})
    return path

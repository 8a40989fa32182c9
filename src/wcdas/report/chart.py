"""A chart as numbers and words; the page draws it, and the files that somebody asks for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Told apart by colour-blind readers, and at least 3 : 1 against the page in both themes.
LIGHT = (
    "#0072b2", "#c14a00", "#00795a", "#a8487f", "#6b5b00",
    "#5a4fcf", "#1a1a1a", "#b00020", "#00707a", "#7a4b1f",
)  # fmt: skip
DARK = (
    "#56b4e9", "#ff9a57", "#3fcfa3", "#e39bc4", "#d6c94a",
    "#a79bff", "#f0f0f0", "#ff8a80", "#5ad1dc", "#d9a066",
)  # fmt: skip


@dataclass(frozen=True)
class Axis:
    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    numbers: bool = True  # False: places on a map, which mean nothing by themselves


@dataclass(frozen=True)
class Series:
    """Numbers under one name; `classes` says which class each point is of, `notes` what hovering
    adds. `colour` counts in the palette."""

    name: str
    kind: Literal["points", "line", "steps", "bars"]
    colour: int
    x: Sequence[float]
    y: Sequence[float | None]
    dashed: bool = False
    classes: Sequence[int] | None = None
    notes: Sequence[str] | None = None


@dataclass(frozen=True)
class Chart:
    """`told` says in words what the chart shows; `marks` are vertical lines with a name."""

    name: str
    title: str
    told: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[tuple[float, str]] = ()


def rounded(value: float | None, digits: int = 4) -> float | None:
    """Keep the digits that can be seen; the others would only make the file larger."""
    return None if value is None else float(f"{value:.{digits}g}")


def percents(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else rounded(100 * value) for value in values]


def signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def counted(n: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun: 1 image, 1,000 images."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"

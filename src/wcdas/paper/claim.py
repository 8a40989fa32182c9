"""A claim of the paper, and what came of checking it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from rich.console import Console
from torch import Tensor

from wcdas.sweeps import Line

TOLERANCE = 1e-10


class Verdict(StrEnum):
    HOLDS = "holds"
    CORRECTED = "holds with a correction"
    REFUTED = "refuted as stated"
    NEEDS_DATA = "needs data that is not here"


def judge(stated: bool, corrected: bool = False) -> Verdict:
    """Return the verdict on a statement that is true as it stands, or after its correction."""
    if stated:
        return Verdict.HOLDS
    return Verdict.CORRECTED if corrected else Verdict.REFUTED


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; a cell that nobody has measured is empty."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @classmethod
    def of_columns(cls, title: str, columns: Mapping[str, Iterable[str]]) -> Self:
        """Return the table whose columns are given by their headings."""
        return cls(title, tuple(columns), tuple(zip(*columns.values(), strict=True)))


@dataclass(frozen=True)
class Setting:
    """What a check may use: a folder for all it leaves, and how much work it may do."""

    out: Path
    mode: str = "quick"
    data_root: Path | None = None
    device: str = "auto"
    console: Console | None = None
    measured: Path | None = None  # the folder of a real mode, whose numbers are shown in quick mode
    results: Sequence[Line] = ()  # those of runs that are not here
    runs: tuple[Path, ...] = ()  # of one's own, for the claims that read any

    @property
    def figures(self) -> Path:
        return self.out / "figures"


@dataclass(frozen=True)
class Finding:
    """A verdict, in a sentence with its numbers, and what shows it; figures are SVG files."""

    verdict: Verdict
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    figures: tuple[Path, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Claim:
    """One statement, figure or table of the paper, and the function that judges it."""

    name: str
    place: str
    statement: str
    cost: str
    check: Callable[[Setting], Finding]
    tolerance: str = ""


def gap(left: Tensor, right: Tensor) -> float:
    """Return the largest difference, relative to the largest value."""
    return float((left - right).abs().max() / right.abs().max())


def identity(
    left: Tensor, right: Tensor, what: str, corrected: Tensor | None = None, correction: str = ""
) -> Finding:
    """Judge an equation: `left` as printed, perhaps `corrected`, against `right`, computed in
    another way."""
    as_printed = gap(left, right)
    numbers = {"largest relative difference": as_printed}
    if as_printed <= TOLERANCE:
        return Finding(judge(True), f"{what}: both sides agree to {as_printed:.1e}.", numbers)
    sentence = f"{what}: the two sides differ by {as_printed:.2g} of the largest value."
    if corrected is None:
        return Finding(judge(False), sentence, numbers)
    after = gap(corrected, right)
    numbers["the same after the correction"] = after
    sentence += f" {correction}: {after:.1e}."
    return Finding(judge(False, after <= TOLERANCE), sentence, numbers)

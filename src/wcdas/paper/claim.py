"""A claim of the paper, and what came of checking it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rich.console import Console

MODES = ("quick", "real")


class Verdict(StrEnum):
    HOLDS = "holds"
    CORRECTED = "holds with a correction"
    REFUTED = "refuted as stated"
    NEEDS_DATA = "needs data that is not here"


def judge(stated: bool, corrected: bool = False) -> Verdict:
    """The verdict on a statement that is true as it stands, or after its correction, or not."""
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


@dataclass(frozen=True)
class Setting:
    """What a check may use: a folder for all it leaves, and how much work it may do."""

    out: Path
    mode: str = "quick"
    data_root: Path | None = None
    device: str = "auto"
    console: Console | None = None
    measured: Path | None = None  # the folder of a real mode, whose numbers are shown in quick mode

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

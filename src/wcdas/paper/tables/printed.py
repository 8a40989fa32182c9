"""The tables as the paper prints them, and what a cell of a table is."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Number:
    """An accuracy in %, and its standard deviation over `seeds` runs where there are several."""

    mean: float
    deviation: float | None = None
    seeds: int = 1

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.1f}"
        return f"{self.mean:.1f}{spread}"

    def clearly_below(self, other: "Number") -> bool:
        """Lower by more than two standard errors of the difference."""
        errors = [n.deviation / math.sqrt(n.seeds) for n in (self, other) if n.deviation]
        return other.mean - self.mean > 2 * math.hypot(*errors)


@dataclass(frozen=True)
class StandIn:
    """What quick mode measures of a part on digits-lt."""

    imbalance: float
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Neighbouring columns that one training fills."""

    label: str
    data: str
    metrics: tuple[str, ...]
    imbalance: float | None = None
    settings: Settings = field(default_factory=dict)
    digits: StandIn | None = None


@dataclass(frozen=True)
class Row:
    label: str
    method: str
    settings: Settings
    printed: tuple[float, ...]
    deviation: tuple[float, ...]


class Cell(NamedTuple):
    row: str
    part: str
    metric: str


Numbers = Mapping[Cell, Number]
REPLICAS = 3  # behind each deviation that the paper prints


@dataclass(frozen=True)
class PrintedTable:
    name: str
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]

    @property
    def columns(self) -> list[tuple[Part, str]]:
        return [(part, metric) for part in self.parts for metric in part.metrics]

    @property
    def numbers(self) -> dict[Cell, Number]:
        """What the paper prints; cells with a dash are left out."""
        found = {}
        for row in self.rows:
            for i, (part, metric) in enumerate(self.columns):
                if not math.isnan(row.printed[i]):
                    several = (row.deviation[i], REPLICAS) if row.deviation else ()
                    found[Cell(row.label, part.label, metric)] = Number(row.printed[i], *several)
        return found


def read_table(name: str) -> PrintedTable:
    table = read_toml(f"printed/{name}.toml")
    parts = tuple(
        Part(
            **part
            | {"metrics": tuple(part["metrics"])}
            | ({"digits": StandIn(**part["digits"])} if "digits" in part else {})
        )
        for part in table["parts"]
    )
    rows = tuple(
        Row(
            row["label"],
            row["method"],
            row.get("settings", {}),
            tuple(row["printed"]),
            tuple(row.get("deviation", ())),
        )
        for row in table["rows"]
    )
    return PrintedTable(name, parts, rows)


def read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))

"""Tables 1 to 4 and 6 to 8: the paper's numbers, the sweeps that measure the same cells, and a
verdict each. A file in `tables/` holds what a table prints and what the paper says of it."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, product
from statistics import fmean
from typing import Any, NamedTuple

from wcdas.groups import GROUPS
from wcdas.paper.claim import Finding, Setting, Table, Verdict
from wcdas.paper.runs import STAND_IN, Protocol, finished_metrics, protocol, read_toml, train
from wcdas.sweeps import mean_and_std

TOLERANCE = 1.5  # points; two standard errors of an accuracy of 50 % on 5,000 images are 1.4
REPLICAS = 3  # behind each deviation that the paper prints


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
        """Whether it is lower by more than two standard errors of the difference."""
        errors = [n.deviation / math.sqrt(n.seeds) for n in (self, other) if n.deviation]
        return other.mean - self.mean > 2 * math.hypot(*errors)


@dataclass(frozen=True)
class Part:
    """Neighbouring columns that one training fills; `digits` is what quick mode measures."""

    label: str
    data: str
    metrics: list[str]
    imbalance: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    digits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    label: str
    method: str
    printed: list[float]
    deviation: list[float] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)


class Cell(NamedTuple):
    row: str
    part: str
    metric: str


Numbers = Mapping[Cell, Number]


@dataclass(frozen=True)
class PrintedTable:
    name: str
    says: Mapping[str, Any]
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
    table = read_toml(f"tables/{name}.toml")
    parts, rows = [Part(**part) for part in table["parts"]], [Row(**row) for row in table["rows"]]
    return PrintedTable(name, table["says"], tuple(parts), tuple(rows))


# What the paper says of a table, in any numbers.


def in_order(table: PrintedTable) -> list[tuple[Cell, Cell]]:
    """Return the pairs of cells of which the paper says that the first is not below the second."""
    says, parts = table.says, [part.label for part in table.parts]
    others = [row.label for row in table.rows if row.label != says.get("best")]
    better = says.get("order", [])
    if "best" in says:
        better = [(says["best"], other) for other in others]
    pairs = [(Cell(one, p, "all"), Cell(other, p, "all")) for p in parts for one, other in better]
    for row in others if "rises" in says else ():
        (before, after), rises, falls = parts, says["rises"], says["falls"]
        pairs.append((Cell(row, after, rises), Cell(row, before, rises)))
        pairs.append((Cell(row, before, falls), Cell(row, after, falls)))
    return pairs


def agrees(table: PrintedTable, numbers: Numbers) -> bool | None:
    """Return whether all is true of the numbers that can be told; None where nothing can."""
    known = [
        not numbers[one].clearly_below(numbers[other])
        for one, other in in_order(table)
        if one in numbers and other in numbers
    ]
    for part in table.parts if "spread" in table.says else ():
        column = [Cell(row.label, part.label, "all") for row in table.rows]
        if all(cell in numbers for cell in column):
            means = [numbers[cell].mean for cell in column]
            known.append(max(means) - min(means) <= table.says["spread"])
    return all(known) if known else None


def differences(table: PrintedTable, ours: Numbers) -> dict[str, float]:
    """Return ours less the paper's, in points, of the cells that both have."""
    printed = table.numbers.items()
    return {", ".join(cell): ours[cell].mean - of.mean for cell, of in printed if cell in ours}


def verdict(table: PrintedTable, ours: Numbers) -> Verdict:
    """Judge what the paper says of its table, by its own numbers and by ours on the same data."""
    measured = agrees(table, ours)
    if agrees(table, table.numbers) is False or measured is False:
        return Verdict.REFUTED
    if measured is None:
        return Verdict.NEEDS_DATA
    close = all(abs(gap) <= TOLERANCE for gap in differences(table, ours).values())
    return Verdict.HOLDS if close else Verdict.CORRECTED


def told(table: PrintedTable, ours: Numbers) -> tuple[str, dict[str, float]]:
    """Return how far ours are from the paper's, in words and in numbers."""
    printed, gaps = len(table.numbers), differences(table, ours)
    numbers: dict[str, float] = {
        "cells that the paper prints": printed,
        "of them measured": len(gaps),
    }
    if not gaps:
        words = f"None of the {printed} printed cells has been measured on the paper's data."
        return words, numbers
    mean, worst = sum(gaps.values()) / len(gaps), max(gaps, key=lambda name: abs(gaps[name]))
    near = sum(abs(gap) <= TOLERANCE for gap in gaps.values())
    words = (
        f"{len(gaps)} of {printed} printed cells are measured, {near} of them within {TOLERANCE} "
        f"points; the mean difference is {mean:+.1f} points, the largest {gaps[worst]:+.1f} "
        f"({worst})."
    )
    return words, numbers | {"mean difference": mean, "largest difference": gaps[worst]}


ROUNDING = 0.1  # points: 0.05 of All and at most 0.05 of the mean of the groups


def totals(table: PrintedTable) -> list[tuple[str, str, float, float]]:
    """Return dataset, row, printed All, and All from the groups, of rows that have all four:
    Σ_g C_g·accuracy_g / Σ_g C_g over the groups g of C_g classes, as the test sets are balanced."""
    sizes, numbers, found = read_toml("tables/groups.toml"), table.numbers, []
    for part, row in product(table.parts, table.rows):
        cells = [Cell(row.label, part.label, metric) for metric in ("all", *GROUPS)]
        if all(cell in numbers for cell in cells):
            printed, *accuracies = (numbers[cell].mean for cell in cells)
            classes = [sizes[part.data][group] for group in GROUPS]
            found.append((part.data, row.label, printed, fmean(accuracies, classes)))
    return found


def consistency(table: PrintedTable) -> str:
    """Return a note on rows whose All does not follow from their groups; it decides nothing."""
    rows = totals(table)
    off = [row for row in rows if abs(row[2] - row[3]) > ROUNDING]
    if not off:
        return ""
    data, label, printed, mean = max(off, key=lambda row: abs(row[2] - row[3]))
    return (
        " A note on consistency, which decides nothing: All is not the mean of Many, Medium and "
        f"Few weighted by their classes, to {ROUNDING} points, in {len(off)} of {len(rows)} rows; "
        f"farthest off is {label} on {data}, {printed:.1f} where its groups give {mean:.1f}."
    )


# Our numbers.


def of_cell(row: Row, part: Part) -> Protocol:
    return protocol(row.method, part.data, part.imbalance, {**part.settings, **row.settings})


def of_stand_in(row: Row, part: Part) -> Protocol | None:
    """Return the same on the digits, where they can stand in."""
    if not part.digits:
        return None
    settings = {**part.digits.get("settings", {}), **row.settings}
    return protocol(row.method, STAND_IN, part.digits["imbalance"], settings)


def measure(
    setting: Setting, table: PrintedTable, protocol_of: Callable[[Row, Part], Protocol | None]
) -> tuple[dict[Cell, Number], dict[str, str]]:
    """Return the numbers of a table's cells, trained where the mode does so, and why parts are
    missing."""
    cells = [(row, part, protocol_of(row, part)) for row in table.rows for part in table.parts]
    failed = train(setting, [(one, row.method) for row, _, one in cells if one is not None])
    found = {}
    for row, part, one in cells:
        metrics = finished_metrics(setting, one, row.method) if one is not None else []
        for metric in part.metrics:
            key = "top1" if metric == "all" else metric
            values = [100 * of[key] for of in metrics if of[key] is not None]
            if values:
                cell = Cell(row.label, part.label, metric)
                found[cell] = Number(*mean_and_std(values), len(values))
    return found, {part.label: failed[one] for _, part, one in cells if one in failed}


def check_table(setting: Setting, table: PrintedTable) -> Finding:
    """Measure a table as the mode allows, and judge what the paper says of it."""
    ours, reasons = measure(setting, table, of_cell)
    digits, _ = measure(setting, table, of_stand_in)
    words, numbers = told(table, ours)
    in_print = "agree with" if agrees(table, table.numbers) else "contradict"
    words += f" The printed numbers {in_print} the statement."
    if (on_digits := agrees(table, digits)) is not None:
        words += f" On {STAND_IN}, which only stands in, it is {str(on_digits).lower()}."
    words += consistency(table)
    notes = {part.label: _why_empty(table, part, ours, reasons) for part in table.parts}
    tables = [*side_by_side(table, ours, notes)]
    if digits:
        tables.append(_on_the_digits(table, digits))
    return Finding(verdict(table, ours), words, numbers, tables=tuple(tables))


def unmeasured(table: PrintedTable, part: Part, ours: Numbers) -> list[str]:
    """Return the rows of a part of which there is no number of ours."""
    measured = {cell.row for cell in ours if cell.part == part.label}
    return [row.label for row in table.rows if row.label not in measured]


def _why_empty(table: PrintedTable, part: Part, ours: Numbers, reasons: Mapping[str, str]) -> str:
    """Return why cells of a part are empty and what fills them."""
    missing = unmeasured(table, part, ours)
    if not missing:
        return ""
    if part.label in reasons:
        return f"{part.label} is not measured: {reasons[part.label]}"
    what = "Empty cells have not been measured"
    if len(missing) < len(table.rows):
        what = f"Not measured on {part.label}: {', '.join(missing)}"
    with_what, root = "on one GPU ", ""
    if part.imbalance is None:  # images that do not come by themselves
        with_what, root = f"with the images of {part.data} in IMAGES ", " --data-root IMAGES"
    return f"{what}; {with_what}`wcdas paper {table.name} --mode real{root} --out DIR` does it."


def side_by_side(table: PrintedTable, ours: Numbers, notes: Mapping[str, str]) -> Iterator[Table]:
    """Yield the paper's number, ours and the difference; a table for each part, or for a dataset
    whose parts have one column each."""
    printed = table.numbers

    def beside(cell: Cell) -> tuple[str, str, str]:
        both = cell in printed and cell in ours
        difference = f"{ours[cell].mean - printed[cell].mean:+.1f}" if both else ""
        return str(printed.get(cell, "")), str(ours.get(cell, "")), difference

    def title(column: tuple[Part, str]) -> str:
        return column[0].data if len(column[0].metrics) == 1 else column[0].label

    for name, group in groupby(table.columns, title):
        columns = [(part.label, metric) for part, metric in group]
        several = len({metric for _, metric in columns}) > 1
        headings = [metric.capitalize() if several else part for part, metric in columns]
        rows = tuple(
            (row.label, *(text for c in columns for text in beside(Cell(row.label, *c))))
            for row in table.rows
        )
        yield Table(
            f"{name}: top-1 accuracy in %, the paper's, ours and the difference",
            ("", *(text for heading in headings for text in (heading, "ours", "Δ"))),
            rows,
            " ".join(dict.fromkeys(notes[part] for part, _ in columns if notes[part])),
        )


def _on_the_digits(table: PrintedTable, numbers: Numbers) -> Table:
    """Return what stands in for the paper's data: ours alone, as the paper has no such numbers."""
    columns = [(part, metric) for part, metric in table.columns if part.digits]
    several = len({part.label for part, _ in columns}) > 1

    def heading(part: Part, metric: str) -> str:
        if not several:
            return metric.capitalize()
        epochs = part.digits.get("settings", {}).get("stages.representation.epochs")
        what = (
            f"{epochs} epoch{'s' * (epochs != 1)}"
            if epochs
            else f"imbalance {part.digits['imbalance']:g}"
        )
        return f"{what}, {metric.capitalize()}"

    rows = tuple(
        (row.label, *(str(numbers.get(Cell(row.label, p.label, m), "")) for p, m in columns))
        for row in table.rows
    )
    seeds = max(number.seeds for number in numbers.values())
    note = (
        f"ResNet-8, {seeds} seed{'s' * (seeds > 1)}, last epoch. They show that every row trains; "
        "accuracies on 500 digits say nothing about the paper's."
    )
    headings = ("", *(heading(*column) for column in columns))
    return Table(f"{STAND_IN}: top-1 accuracy in %, ours", headings, rows, note)


def _check_of(name: str) -> Callable[[Setting], Finding]:
    def check(setting: Setting) -> Finding:
        """Measured cells beside the printed ones, and what the paper says of their order."""
        return check_table(setting, read_table(name))

    return check


table_1, table_2, table_3, table_4, table_6, table_7, table_8 = (
    _check_of(f"table-{number}") for number in (1, 2, 3, 4, 6, 7, 8)
)

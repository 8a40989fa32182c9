"""A table of the paper with our numbers beside its own."""

from collections.abc import Mapping
from itertools import groupby

from wcdas.paper.claim import Table
from wcdas.paper.tables.printed import Cell, Number, Numbers, Part, PrintedTable
from wcdas.paper.tables.protocols import STAND_IN

COLUMNS = "top-1 accuracy in %, the paper's, ours and the difference"
NAMES = {"many": "Many", "medium": "Medium", "few": "Few", "all": "All"}


def side_by_side(
    table: PrintedTable, printed: Numbers, ours: Numbers, notes: Mapping[str, str]
) -> tuple[Table, ...]:
    """The paper's number, ours and the difference; a table for each part, or for a dataset whose
    parts have one column each."""
    tables = []
    for title, columns in groupby(table.columns, lambda column: _group(*column)):
        cells = [(part.label, metric) for part, metric in columns]
        several = len({metric for _, metric in cells}) > 1
        headings = [NAMES[metric] if several else part for part, metric in cells]
        rows = tuple(
            (
                row.label,
                *(text for cell in cells for text in _beside(row.label, cell, printed, ours)),
            )
            for row in table.rows
        )
        heads = tuple(text for heading in headings for text in (heading, "ours", "Δ"))
        note = " ".join(dict.fromkeys(notes[part] for part, _ in cells if part in notes))
        tables.append(Table(f"{title}: {COLUMNS}", ("", *heads), rows, note))
    return tuple(tables)


def on_the_digits(table: PrintedTable, numbers: Numbers) -> Table:
    """What stands in for the paper's data: ours alone, since the paper has no such numbers."""
    columns = [(part, metric) for part, metric in table.columns if part.digits is not None]
    several = len({part.label for part, _ in columns}) > 1
    heads = tuple(_stand_in_heading(part, metric, several) for part, metric in columns)
    cells = [(part.label, metric) for part, metric in columns]
    rows = tuple((row.label, *(_text(numbers, row.label, *c) for c in cells)) for row in table.rows)
    seeds = max((number.seeds for number in numbers.values()), default=1)
    return Table(
        f"{STAND_IN}: top-1 accuracy in %, ours",
        ("", *heads),
        rows,
        f"ResNet-8, {seeds} seed{'s' * (seeds > 1)}, last epoch. They show that every row trains; "
        "accuracies on 500 digits say nothing about the paper's.",
    )


def _group(part: Part, metric: str) -> str:
    return part.data if len(part.metrics) == 1 else part.label


def _beside(row: str, column: tuple[str, str], printed: Numbers, ours: Numbers) -> tuple[str, ...]:
    cell = Cell(row, *column)
    both = cell in printed and cell in ours
    difference = f"{ours[cell].mean - printed[cell].mean:+.1f}" if both else ""
    return _text(printed, row, *column), _text(ours, row, *column), difference


def _text(numbers: Numbers, row: str, part: str, metric: str) -> str:
    number: Number | None = numbers.get(Cell(row, part, metric))
    return "" if number is None else str(number)


def _stand_in_heading(part: Part, metric: str, several: bool) -> str:
    assert part.digits is not None
    if not several:
        return NAMES[metric]
    epochs = part.digits.settings.get("stages.representation.epochs")
    what = f"{epochs} epochs" if epochs else f"imbalance {part.digits.imbalance:g}"
    return f"{what}, {NAMES[metric]}"

"""Sentences about a table, true or not of any numbers in its cells; None where they cannot tell."""

from collections.abc import Iterable

from wcdas.paper.tables.printed import Cell, Numbers, PrintedTable

Answer = bool | None


def together(answers: Iterable[Answer]) -> Answer:
    """Whether all hold that can be told."""
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None


def at_least(numbers: Numbers, better: Cell, worse: Cell) -> Answer:
    """Whether one is not clearly below the other."""
    if better not in numbers or worse not in numbers:
        return None
    return not numbers[better].clearly_below(numbers[worse])


def leads(table: PrintedTable, numbers: Numbers, row: str, metric: str = "all") -> Answer:
    """Whether a row is the best of its column, in every column of a metric."""
    return together(
        at_least(numbers, Cell(row, part.label, metric), Cell(other.label, part.label, metric))
        for part in table.parts
        for other in table.rows
        if metric in part.metrics and other.label != row
    )


def spread(table: PrintedTable, numbers: Numbers, part: str, metric: str = "all") -> float | None:
    """The best of a column less the worst; None while a row is missing."""
    cells = [Cell(row.label, part, metric) for row in table.rows]
    if any(cell not in numbers for cell in cells):
        return None
    means = [numbers[cell].mean for cell in cells]
    return max(means) - min(means)

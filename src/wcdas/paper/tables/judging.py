"""From a table's cells to its verdict."""

from collections.abc import Callable, Mapping

from wcdas.data import TAILED
from wcdas.paper.claim import Finding, Setting, Verdict
from wcdas.paper.tables.comparing import Answer
from wcdas.paper.tables.measuring import measure, stand_in
from wcdas.paper.tables.printed import Numbers, PrintedTable
from wcdas.paper.tables.protocols import STAND_IN
from wcdas.paper.tables.side_by_side import on_the_digits, side_by_side

TOLERANCE = 1.5  # points; two standard errors of an accuracy of 50 % on 5,000 images are 1.4
TOLERANCE_IN_WORDS = (
    f"{TOLERANCE} points for a number; in an order, two standard errors of a difference over seeds"
)

Agrees = Callable[[PrintedTable, Numbers], Answer]


def check_table(setting: Setting, table: PrintedTable, agrees: Agrees) -> Finding:
    """Measure a table as the mode allows, and judge what the paper says of it."""
    printed, (ours, reasons) = table.numbers, measure(setting, table)
    digits = stand_in(setting, table)
    notes = {part.label: missing(table, part.label, ours, reasons) for part in table.parts}
    tables = side_by_side(table, printed, ours, {k: v for k, v in notes.items() if v})
    return Finding(
        verdict(printed, ours, agrees(table, printed), agrees(table, ours)),
        f"{told(printed, ours)} {_also(agrees(table, printed), agrees(table, digits))}",
        numbers(printed, ours),
        tables=(*tables, *((on_the_digits(table, digits),) if digits else ())),
    )


def verdict(
    printed: Numbers,
    ours: Numbers,
    in_print: Answer,
    measured: Answer,
    tolerance: float = TOLERANCE,
) -> Verdict:
    """What the paper says of its table, by its own numbers and by ours on the same data."""
    if in_print is False or measured is False:
        return Verdict.REFUTED
    if measured is None:
        return Verdict.NEEDS_DATA
    close = all(abs(gap) <= tolerance for gap in differences(printed, ours).values())
    return Verdict.HOLDS if close else Verdict.CORRECTED


def differences(printed: Numbers, ours: Numbers) -> dict[str, float]:
    """Ours less the paper's, in points, of the cells that both have."""
    return {
        ", ".join(cell): ours[cell].mean - printed[cell].mean for cell in printed if cell in ours
    }


def numbers(printed: Numbers, ours: Numbers) -> Mapping[str, float]:
    gaps = differences(printed, ours)
    found: dict[str, float] = {
        "cells that the paper prints": len(printed),
        "of them measured": len(gaps),
    }
    if gaps:
        found["mean difference"] = sum(gaps.values()) / len(gaps)
        found["largest difference"] = max(gaps.values(), key=abs)
    return found


def told(printed: Numbers, ours: Numbers) -> str:
    gaps = differences(printed, ours)
    if not gaps:
        return f"None of the {len(printed)} printed cells has been measured on the paper's data."
    worst = max(gaps, key=lambda name: abs(gaps[name]))
    near = sum(abs(gap) <= TOLERANCE for gap in gaps.values())
    return (
        f"{len(gaps)} of {len(printed)} printed cells are measured, {near} of them within "
        f"{TOLERANCE} points; the mean difference is {sum(gaps.values()) / len(gaps):+.1f} points, "
        f"the largest {gaps[worst]:+.1f} ({worst})."
    )


def missing(table: PrintedTable, label: str, ours: Numbers, reasons: Mapping[str, str]) -> str:
    """Why cells of a part are empty and what fills them."""
    (part,) = (part for part in table.parts if part.label == label)
    if sum(cell.part == label for cell in ours) == len(table.rows) * len(part.metrics):
        return ""
    if label in reasons:
        return f"{label} is not measured: {reasons[label]}"
    if part.data in TAILED:  # which come by themselves
        with_what, root = "on one GPU ", ""
    else:
        with_what, root = f"with the images of {part.data} in IMAGES ", " --data-root IMAGES"
    return (
        f"Empty cells have not been measured; {with_what}"
        f"`wcdas paper {table.name} --mode real{root} --out DIR` does it."
    )


def _also(in_print: Answer, on_digits: Answer) -> str:
    said = f"The printed numbers {'agree with' if in_print else 'contradict'} the statement."
    if on_digits is None:
        return said
    return f"{said} On {STAND_IN}, which only stands in, it is {str(on_digits).lower()}."

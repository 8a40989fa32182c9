"""The headline numbers of one run, beside a baseline, or of several."""

from collections.abc import Sequence
from typing import Any

from wcdas.evaluation.table import percent
from wcdas.groups import GROUPS, IN_WORDS
from wcdas.report.html import Cell, paragraph, table
from wcdas.report.record import Record

# Other numbers: where they stand in the metrics, and whether more is better.
OTHERS = {
    "top-1": ("top1", True),
    "top-5": ("top5", True),
    "balanced accuracy": ("balanced_accuracy", True),
    "macro F1": ("macro_f1", True),
    "calibration error": ("ece", False),
}


def results_table(records: Sequence[Record], labels: Sequence[str], reference: int) -> str:
    """A column for each run, and for all but the reference how far they are from it."""
    rows: list[list[Cell]] = []
    first = records[0]
    for group in GROUPS:
        classes = first.metrics["group_classes"][group]
        label = f"{IN_WORDS[group]}, {classes:,} class{'es' * (classes != 1)}"
        rows.append(_row(label, [r.metrics[group] for r in records], reference, True))
    rows.append(_row(_all(records), [r.headline for r in records], reference, True))
    for label, (key, more) in OTHERS.items():
        trivial = key == "top5" and len(first.class_names) <= 5
        if key != first.metrics["headline"] and not trivial:
            rows.append(_row(label, [r.metrics[key] for r in records], reference, more))
    never: list[Cell] = ["classes never predicted"]
    for i, record in enumerate(records):
        never += [str(record.metrics["never_predicted"])] + [""] * (i != reference)
    rows.append(never)
    columns = ["in %, last epoch"]
    for i, label in enumerate(labels):
        columns += [label] + ["difference"] * (i != reference)
    return table("Accuracy on the test set", columns, rows)


def explained(record: Record) -> str:
    """What “all” is, and how far it can be trusted."""
    error = record.standard_error()
    what = (
        "“All” is top-1 accuracy."
        if record.metrics["headline"] == "top1"
        else "“All” is balanced accuracy, the mean over classes, since the test set is imbalanced."
    )
    if error is None:
        return paragraph("There are no test images, so nothing could be measured.")
    return paragraph(
        f"{what} {record.metrics['test_images']:,} test images leave a standard error of "
        f"{100 * error:.2g} points on it. The groups are means over their classes.",
        "soft",
    )


def _all(records: Sequence[Record]) -> str:
    return "all" if records[0].metrics["headline"] == "top1" else "all (balanced)"


def _row(label: str, values: Sequence[Any], reference: int, more: bool) -> list[Cell]:
    cells: list[Cell] = [label]
    for i, value in enumerate(values):
        cells.append(percent(value))
        if i != reference:
            cells.append(change(value, values[reference], more))
    return cells


def signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def change(value: float | None, before: float | None, more_is_better: bool = True) -> Cell:
    if value is None or before is None:
        return "–"
    difference = 100 * (value - before)
    text = signed(difference)
    if not float(f"{difference:.1f}"):
        return "0.0"
    return text, "good" if (difference > 0) == more_is_better else "bad"

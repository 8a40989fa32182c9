"""The tables of a page: the result of one run or several, and every class."""

from collections.abc import Mapping, Sequence
from typing import Any

from wcdas.evaluation.table import percent
from wcdas.groups import GROUPS, IN_WORDS
from wcdas.report.chart import counted, percents, rounded
from wcdas.report.record import Record

Cell = tuple[str, str]  # its text, and its class in the style sheet
Column = dict[str, Any]

# Other numbers: where they stand in the metrics, and whether more is better.
OTHERS = {
    "top-1": ("top1", True),
    "top-5": ("top5", True),
    "balanced accuracy": ("balanced_accuracy", True),
    "macro F1": ("macro_f1", True),
    "calibration error": ("ece", False),
}


def results(runs: Mapping[str, Record]) -> tuple[list[str], dict[str, list[Cell]]]:
    """Return the titles of the columns and the rows by their label: a column for each run, and
    for all but the first how far they are from it."""
    first, *others = runs
    records = list(runs.values())
    metrics = records[0].metrics
    rows = {}
    for group in GROUPS:
        classes = counted(metrics["group_classes"][group], "class", "classes")
        rows[f"{IN_WORDS[group]}, {classes}"] = _row([r.metrics[group] for r in records])
    top1 = metrics["headline"] == "top1"
    rows["all" if top1 else "all (balanced)"] = _row([r.headline for r in records])
    for label, (key, more) in OTHERS.items():
        trivial = key == "top5" and len(records[0].class_names) <= 5
        if key != metrics["headline"] and not trivial:
            rows[label] = _row([r.metrics[key] for r in records], more)
    never = [[(str(r.metrics["never_predicted"]), ""), ("", "")] for r in records]
    rows["classes never predicted"] = [never[0][0], *(cell for pair in never[1:] for cell in pair)]
    differences = [title for label in others for title in (label, "difference")]
    return ["in %, last epoch", first, *differences], rows


def _row(values: Sequence[float | None], more_is_better: bool = True) -> list[Cell]:
    first, *others = values
    cells = [(percent(first), "")]
    for value in others:
        cells += [(percent(value), ""), change(value, first, more_is_better)]
    return cells


def change(value: float | None, before: float | None, more_is_better: bool = True) -> Cell:
    if value is None or before is None:
        return "–", ""
    difference = 100 * (value - before)
    if not float(f"{difference:.1f}"):
        return "0.0", ""
    return signed(difference), "good" if (difference > 0) == more_is_better else "bad"


def signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def class_table(runs: Mapping[str, Record]) -> dict[str, Any]:
    """Return the table of classes as the page's script takes it, sorted by training images.

    Of one run it has all that is known of a class; of several, the accuracies beside each other,
    then how far each run is from the first.
    """
    first, *others = runs
    record = runs[first]
    columns = [
        _column("class", "text", record.class_names),
        _column("group", "text", record.class_groups),
        _column("training images", "count", record.class_counts),
        _column("test images", "count", record.test_counts),
    ]
    if others:
        accuracies = {label: percents(run.accuracy) for label, run in runs.items()}
        columns += [_column(f"{name} %", "percent", values) for name, values in accuracies.items()]
        for label in others:
            pairs = zip(accuracies[first], accuracies[label], strict=True)
            changes = [None if a is None or b is None else rounded(b - a) for a, b in pairs]
            columns.append(_column(f"{label} − {first}", "change", changes))
    else:
        columns += _run_columns(record)
    return {"columns": columns, "sort": [2, False]}


def _run_columns(record: Record) -> list[Column]:
    rows, rho = record.metrics["per_class"], record.measured["rho"]
    index = {name: i for i, name in enumerate(record.class_names)}
    confused = [row["most_confused_with"] for row in rows]
    columns = [
        _column("accuracy %", "percent", percents(record.accuracy)),
        _column("precision %", "percent", percents([row["precision"] for row in rows])),
    ]
    if rho is not None:
        columns.append(_column("ρ", "rho", [rounded(value) for value in rho]))
    taken = [None if name is None else index[str(name)] for name in confused]
    return [*columns, _column("most taken for", "class", taken)]


def _column(title: str, kind: str, values: Sequence[Any]) -> Column:
    return {"title": title, "kind": kind, "values": list(values)}

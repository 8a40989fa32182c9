"""The table of classes as the page's script takes it."""

from collections.abc import Sequence
from typing import Any

from wcdas.report.chart import percents, rounded
from wcdas.report.record import Record

Column = dict[str, Any]


def column(title: str, kind: str, values: Sequence[Any]) -> Column:
    return {"title": title, "kind": kind, "values": list(values)}


def first_columns(record: Record) -> list[Column]:
    rows = record.metrics["per_class"]
    return [
        column("class", "text", record.class_names),
        column("group", "text", record.class_groups),
        column("training images", "count", record.class_counts),
        column("test images", "count", [row["test_images"] for row in rows]),
    ]


def run_columns(record: Record) -> list[Column]:
    rows, rho = record.metrics["per_class"], record.measured["rho"]
    places = {name: i for i, name in enumerate(record.class_names)}
    confused = [row["most_confused_with"] for row in rows]
    columns = [
        *first_columns(record),
        column("accuracy %", "percent", percents(record.accuracy)),
        column("precision %", "percent", percents([row["precision"] for row in rows])),
    ]
    if rho is not None:
        columns.append(column("ρ", "rho", [rounded(value) for value in rho]))
    taken = [None if name is None else places[str(name)] for name in confused]
    return [*columns, column("most taken for", "class", taken)]


def page_data(record: Record, columns: list[Column], sort: str, runs: int = 1) -> dict[str, Any]:
    """What the script needs beside the charts; the table starts sorted by one column."""
    titles = [one["title"] for one in columns]
    return {
        "runs": runs,
        "classes": record.class_names,
        "table": {"columns": columns, "sort": [titles.index(sort), False]},
    }

"""One page that compares several runs."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from wcdas.deploy.output import check_new
from wcdas.errors import InputError
from wcdas.report.chart import Chart, percents, rounded
from wcdas.report.classes import Column, column, first_columns, page_data
from wcdas.report.compared_charts import compared_charts
from wcdas.report.document import write_document
from wcdas.report.facts import again
from wcdas.report.figures import write_figures
from wcdas.report.html import chart_figure, class_table, command, paragraph, section, table
from wcdas.report.record import Record
from wcdas.report.results import explained, results_table
from wcdas.report.settings import differing

MOST = 10  # as many as there are colours


def write_comparison(folder: Path, records: Sequence[Record], overwrite: bool = False) -> Path:
    """report.html and figures/ in a folder."""
    if len(records) > MOST:
        raise InputError(
            f"{len(records)} runs were named; expected at most {MOST}, as many as can be told apart"
        )
    if any((folder / name).exists() for name in ("run.toml", "sweep.toml")):
        raise InputError(
            f"{folder} is a run's folder, whose own report would be lost; choose another with --out"
        )
    path = folder / "report.html"
    check_new(path, overwrite)
    labels = told_apart(records)
    same_data = len({record.run["info"]["fingerprint"] for record in records}) == 1
    same_classes = all(
        (r.class_names, r.class_counts) == (records[0].class_names, records[0].class_counts)
        for r in records
    )
    charts = compared_charts(records, labels, same_classes)
    parts = {
        "result": ("Result", _result(records, labels, same_data)),
        "settings": ("What differs", _settings(records, labels)),
        "classes": ("Classes", _classes(charts, same_classes)),
        "rho": ("Concentration", _rho(charts)),
        "training": ("Training", [chart_figure(charts[n]) for n in ("learning", "loss")]),
        "reliability": ("Reliability", [chart_figure(charts["reliability"])]),
        "reproduce": ("Reproduce", _reproduce(records)),
    }
    sections = {
        name: (title, section(name, title, list(body))) for name, (title, body) in parts.items()
    }
    columns = compared_columns(records, labels) if same_classes else first_columns(records[0])
    write_document(
        path,
        f"{' · '.join(dict.fromkeys(r.data for r in records))}: {', '.join(labels)}",
        f"{len(records)} runs beside each other. All numbers are of the last epoch.",
        sections,
        charts.values(),
        page_data(records[0], columns, "training images", runs=len(records)),
        [f"{name}: {text}" for name, r in zip(labels, records, strict=True) for text in r.warnings],
    )
    write_figures(charts.values(), folder / "figures")
    return path


def told_apart(records: Sequence[Record]) -> list[str]:
    """The methods; with seeds, data or folders where these are not enough."""
    candidates = (
        [r.method for r in records],
        [f"{r.method}, seed {r.seed}" for r in records],
        [f"{r.method}, {r.data}" for r in records],
        [r.folder.name for r in records],
        [str(r.folder) for r in records],
    )
    return next(
        (labels for labels in candidates if len(set(labels)) == len(labels)), candidates[-1]
    )


def compared_columns(records: Sequence[Record], labels: Sequence[str]) -> list[Column]:
    """The accuracies beside each other, then how far each run is from the first."""
    accuracies = [percents(record.accuracy) for record in records]
    columns = first_columns(records[0])
    columns += [
        column(f"{label} %", "percent", values)
        for label, values in zip(labels, accuracies, strict=True)
    ]
    for label, values in zip(labels[1:], accuracies[1:], strict=True):
        changes = [
            None if a is None or b is None else rounded(b - a)
            for a, b in zip(accuracies[0], values, strict=True)
        ]
        columns.append(column(f"{label} − {labels[0]}", "change", changes))
    return columns


def _result(records: Sequence[Record], labels: Sequence[str], same_data: bool) -> Iterator[str]:
    yield results_table(records, labels, 0)
    yield paragraph(f"Differences are to {labels[0]}, the first run named.", "soft")
    if not same_data:
        yield paragraph(
            "The runs are not on the same data: differences say as much of the data as of the "
            "methods."
        )
    yield explained(records[0])


def _settings(records: Sequence[Record], labels: Sequence[str]) -> Iterator[str]:
    found = differing(records)
    if not found:
        yield paragraph("Nothing: the settings are the same.")
        return
    rows = [[key, *map(str, values)] for key, values in found.items()]
    yield table("Settings that are not the same", ["key of run.toml", *labels], rows)


def _classes(charts: dict[str, Chart], same_classes: bool) -> Iterator[str]:
    if not same_classes:
        yield paragraph("The runs have different classes or class sizes, so none are compared.")
        return
    yield chart_figure(charts["accuracy"])
    yield class_table("classes", "Every class")


def _rho(charts: dict[str, Chart]) -> Iterator[str]:
    if "rho" in charts:
        yield chart_figure(charts["rho"])
    else:
        yield paragraph("No ρ to compare.")


def _reproduce(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        yield command(again(record))
    yield paragraph("This page:")
    yield command(f"wcdas report {shlex.join(str(record.folder) for record in records)}")

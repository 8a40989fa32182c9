"""Of very many classes a page shows some; a browser could not draw a dot for each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wcdas.report.charts import Chart, Series
from wcdas.report.record import Record

MOST = 10_000  # classes on a page, beside those that its confusions and its map name


def shown_classes(record: Record) -> Sequence[int]:
    """The classes on a page: all, or of very many every n-th from the largest to the smallest, and
    those that the page names."""
    counts, every = record.class_counts, -(-len(record.class_counts) // MOST)
    if every == 1:
        return range(len(counts))
    by_size = sorted(range(len(counts)), key=lambda c: (-counts[c], c))
    pairs = [(pair["true"], pair["predicted"]) for pair in record.measured["confusions"]]
    points = record.measured["map"]["rows"] if record.measured["map"] else []
    named = {c for pair in (*pairs, *(row[2:] for row in points)) for c in pair}
    return sorted({*by_size[::every], *named})


def thinned(charts: Mapping[str, Chart], shown: Sequence[int]) -> dict[str, Chart]:
    """Charts with the dots of the shown classes alone, which count by their places among these."""
    places = {c: place for place, c in enumerate(shown)}
    return {
        name: replace(chart, series=[_thinned(one, places) for one in chart.series])
        for name, chart in charts.items()
    }


def _thinned(series: Series, places: Mapping[int, int]) -> Series:
    if series.classes is None:
        return series
    kept = [i for i, c in enumerate(series.classes) if c in places]
    return replace(
        series,
        x=[series.x[i] for i in kept],
        y=[series.y[i] for i in kept],
        classes=[places[series.classes[i]] for i in kept],
        notes=None if series.notes is None else [series.notes[i] for i in kept],
    )


def thinned_columns(
    columns: Sequence[Mapping[str, Any]], shown: Sequence[int], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows of the shown classes; other classes that they name are spelt out."""
    found = []
    for column in columns:
        column = {**column, "values": [column["values"][c] for c in shown]}
        if column["kind"] == "class" and len(shown) < len(names):
            spelt = [None if c is None else names[c] for c in column["values"]]
            column |= {"kind": "text", "values": spelt}
        found.append(column)
    return found

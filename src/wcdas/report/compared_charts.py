"""The charts of several runs on one page: a colour for each run."""

from collections.abc import Sequence

from wcdas.evaluation.table import percent
from wcdas.report.chart import Axis, Chart, Series, percents, rounded
from wcdas.report.charts import (
    PERCENT,
    TRAINING_IMAGES,
    TREND_FROM,
    epochs_and_stages,
    on_log_axis,
)
from wcdas.report.record import Record
from wcdas.report.trend import trend


def compared_charts(
    records: Sequence[Record], labels: Sequence[str], same_classes: bool
) -> dict[str, Chart]:
    """By name; what is told of single classes only where the runs have the same ones."""
    charts = [_learning(records, labels), _loss(records, labels), _reliability(records, labels)]
    if same_classes:
        charts = [_accuracy(records, labels), _rho(records, labels), *charts]
    return {chart.name: chart for chart in charts if chart.series}


def _accuracy(records: Sequence[Record], labels: Sequence[str]) -> Chart:
    series = []
    for colour, (record, label) in enumerate(zip(records, labels, strict=True)):
        values = percents(record.accuracy)
        series.append(_dots(record, label, colour, values))
        if len(values) >= TREND_FROM:
            series.append(trend(f"{label}, mean", record.class_counts, values, colour))
    parts = [f"{n} {percent(r.headline)} %" for r, n in zip(records, labels, strict=True)]
    told = f"One dot a class and run. All: {', '.join(parts)}."
    return Chart("accuracy", "Accuracy of each class", told, TRAINING_IMAGES, PERCENT, series)


def _rho(records: Sequence[Record], labels: Sequence[str]) -> Chart:
    series = [
        _dots(record, label, colour, record.measured["rho"])
        for colour, (record, label) in enumerate(zip(records, labels, strict=True))
        if record.measured["rho"] is not None
    ]
    told = "One dot a class, of the runs whose head has a ρ."
    axis = Axis("concentration ρ", low=0, high=1)
    return Chart("rho", "Concentration ρ of each class", told, TRAINING_IMAGES, axis, series)


def _learning(records: Sequence[Record], labels: Sequence[str]) -> Chart:
    series = []
    for colour, (record, label) in enumerate(zip(records, labels, strict=True)):
        lines = list(zip(epochs_and_stages(record.log)[0], record.log, strict=True))
        tests = [(at, line["test"]) for at, line in lines if line.get("test")]
        key = record.metrics["headline"]
        values = percents([test[key] for _, test in tests])
        series.append(Series(label, "line", colour, [at for at, _ in tests], values))
    told = "Accuracy on the test set while training; the last epoch is the result."
    axes = Axis("epoch", low=0), PERCENT
    return Chart("learning", "Accuracy while training", told, *axes, series)


def _loss(records: Sequence[Record], labels: Sequence[str]) -> Chart:
    series = []
    for colour, (record, label) in enumerate(zip(records, labels, strict=True)):
        losses = [rounded(line["loss"]) for line in record.log]
        series.append(Series(label, "line", colour, epochs_and_stages(record.log)[0], losses))
    told = "The loss of each run; losses of different methods are not on one scale."
    axes = Axis("epoch", low=0), Axis("loss", low=0)
    return Chart("loss", "Training loss", told, *axes, series)


def _reliability(records: Sequence[Record], labels: Sequence[str]) -> Chart:
    series = [Series("as sure as right", "line", 6, [0, 100], [0, 100], dashed=True)]
    parts = []
    for colour, (record, label) in enumerate(zip(records, labels, strict=True)):
        filled = [b for b in record.measured["reliability"] if b["images"]]
        x, y = (percents([b[key] for b in filled]) for key in ("confidence", "accuracy"))
        series.append(Series(label, "line", colour, [v or 0.0 for v in x], y))
        parts.append(f"{label} {percent(record.metrics['ece'])} %")
    told = f"Expected calibration error: {', '.join(parts)}."
    axes = Axis("confidence in %", low=0, high=100), PERCENT
    return Chart("reliability", "Reliability", told, *axes, series)


def _dots(record: Record, label: str, colour: int, values: Sequence[float | None]) -> Series:
    members = [c for c, value in enumerate(values) if value is not None]
    members.sort(key=lambda c: (record.class_counts[c], c))
    x = [on_log_axis(record.class_counts[c]) for c in members]
    return Series(label, "points", colour, x, [values[c] for c in members], classes=members)

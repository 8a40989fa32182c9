"""The charts of one run, and those of several runs on one page."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch

from wcdas.evaluation.table import percent
from wcdas.groups import GROUPS, IN_WORDS, group_means
from wcdas.report.chart import Axis, Chart, Series, counted, percents, rounded
from wcdas.report.measure import ANGLE_BINS
from wcdas.report.record import Record

TRAINING_IMAGES = Axis("training images of the class", log=True)
PERCENT = Axis("accuracy in %", low=0, high=100)
RHO = Axis("concentration ρ", low=0, high=1)
EPOCH, LOSS = Axis("epoch", low=0), Axis("loss", low=0)
CONFIDENCE = Axis("confidence in %", low=0, high=100)
AS_SURE_AS_RIGHT = Series("as sure as right", "line", 6, [0, 100], [0, 100], dashed=True)
BY_CLASS = 10  # up to so many classes the map shows each in a colour of its own
TREND_FROM, TREND_BINS = 30, 12  # classes that have a line of their mean, and its points


def run_charts(record: Record) -> dict[str, Chart]:
    """Return the charts of a run by name, those there is something to show for."""
    charts = (
        _accuracy(record),
        _rho(record),
        _angles(record),
        _learning(record),
        _loss(record),
        _rho_training(record),
        _reliability(record),
        _map(record),
        _tail(record),
    )
    return {chart.name: chart for chart in charts if chart is not None}


def compared_charts(runs: Mapping[str, Record], same_classes: bool) -> dict[str, Chart]:
    """Return the charts of several runs by name, a colour for each run; what is told of single
    classes only where the runs have the same ones."""
    charts = [_compared_learning(runs), _compared_loss(runs), _compared_reliability(runs)]
    if same_classes:
        charts = [_compared_accuracy(runs), _compared_rho(runs), *charts]
    return {chart.name: chart for chart in charts if chart.series}


def _accuracy(record: Record) -> Chart:
    values = percents(record.accuracy)
    series = _by_group(record, values)
    if len(values) >= TREND_FROM:
        series.append(trend("mean", record.class_counts, values, 6))
    parts = [
        f"{group} {percent(record.metrics[group])} %"
        for group in GROUPS
        if record.metrics[group] is not None
    ]
    untested = values.count(None)
    told = f"Mean accuracy of the classes: {', '.join(parts)}." if parts else "Nothing to measure."
    if untested:
        told += f" {counted(untested, 'class has', 'classes have')} no test images and no dot."
    return Chart("accuracy", "Accuracy of each class", told, TRAINING_IMAGES, PERCENT, series)


def _compared_accuracy(runs: Mapping[str, Record]) -> Chart:
    series = []
    for colour, (label, record) in enumerate(runs.items()):
        values = percents(record.accuracy)
        series.append(_dots(record, label, colour, values))
        if len(values) >= TREND_FROM:
            series.append(trend(f"{label}, mean", record.class_counts, values, colour))
    parts = [f"{label} {percent(record.headline)} %" for label, record in runs.items()]
    told = f"One dot a class and run. All: {', '.join(parts)}."
    return Chart("accuracy", "Accuracy of each class", told, TRAINING_IMAGES, PERCENT, series)


def _rho(record: Record) -> Chart | None:
    rho = record.measured["rho"]
    if rho is None:
        return None
    means = group_means(torch.tensor(rho, dtype=torch.float64), torch.tensor(record.class_counts))
    parts = [f"{group} {mean:.3f}" for group, mean in means.items() if mean is not None]
    told = f"Mean ρ: {', '.join(parts)}."
    series = _by_group(record, rho)
    return Chart("rho", "Concentration ρ of each class", told, TRAINING_IMAGES, RHO, series)


def _compared_rho(runs: Mapping[str, Record]) -> Chart:
    series = [
        _dots(record, label, colour, record.measured["rho"])
        for colour, (label, record) in enumerate(runs.items())
        if record.measured["rho"] is not None
    ]
    told = "One dot a class, of the runs whose head has a ρ."
    return Chart("rho", "Concentration ρ of each class", told, TRAINING_IMAGES, RHO, series)


def _angles(record: Record) -> Chart | None:
    angles = record.measured["angles"]
    if angles is None:
        return None
    middles = [180 / ANGLE_BINS * (i + 0.5) for i in range(ANGLE_BINS)]
    series, told = [], []
    for colour, group in enumerate(GROUPS):
        if not sum(angles["own"][group]):
            continue
        own, other = angles["mean_own"][group], angles["mean_other"][group]
        told.append(f"{group} {own:.0f}° to the own class, {other:.0f}° to the nearest other")
        for kind, name in (("own", "own class"), ("other", "nearest other")):
            counts = angles[kind][group]
            shares = [rounded(100 * n / sum(counts)) for n in counts]
            dashed = kind == "other"
            series.append(Series(f"{group}, {name}", "steps", colour, middles, shares, dashed))
    return Chart(
        "angles",
        "Angles between features and class weights",
        f"Mean angle of the test samples: {'; '.join(told)}.",
        Axis("angle in degrees", low=0, high=180),
        Axis("share of the group in %", low=0),
        series,
    )


def _learning(record: Record) -> Chart | None:
    if not record.log:
        return None
    epochs, marks = _epochs_and_stages(record.log)
    fitted = percents([line.get("train_accuracy") for line in record.log])
    series = []
    if any(value is not None for value in fitted):
        series.append(Series("training images", "line", 6, epochs, fitted, dashed=True))
    for colour, group in enumerate(GROUPS):
        tested, values = _tested(record, group)
        if any(value is not None for value in values):
            series.append(Series(f"test, {group}", "line", colour, tested, values))
    told = "Accuracy while training. The last epoch is the result, whatever came before."
    if any(s.get("mixup") or s.get("cutmix") for s in record.run["stages"].values()):
        told += " Training images are mixed two by two, and one of the two labels counts."
    return Chart("learning", "Accuracy while training", told, EPOCH, PERCENT, series, marks)


def _compared_learning(runs: Mapping[str, Record]) -> Chart:
    series = [
        Series(label, "line", colour, *_tested(record, record.metrics["headline"]))
        for colour, (label, record) in enumerate(runs.items())
    ]
    told = "Accuracy on the test set while training; the last epoch is the result."
    return Chart("learning", "Accuracy while training", told, EPOCH, PERCENT, series)


def _loss(record: Record) -> Chart | None:
    if not record.log:
        return None
    epochs, marks = _epochs_and_stages(record.log)
    losses = [line["loss"] for line in record.log]
    told = f"From {losses[0]:.3g} to {losses[-1]:.3g} in {counted(len(epochs), 'epoch')}" + (
        f", stages {' → '.join(name for _, name in marks)}." if len(marks) > 1 else "."
    )
    series = [Series("training loss", "line", 6, epochs, [rounded(v) for v in losses])]
    return Chart("loss", "Training loss", told, EPOCH, LOSS, series, marks)


def _compared_loss(runs: Mapping[str, Record]) -> Chart:
    series = []
    for colour, (label, record) in enumerate(runs.items()):
        losses = [rounded(line["loss"]) for line in record.log]
        series.append(Series(label, "line", colour, list(range(1, len(losses) + 1)), losses))
    told = "The loss of each run; losses of different methods are not on one scale."
    return Chart("loss", "Training loss", told, EPOCH, LOSS, series)


def _rho_training(record: Record) -> Chart | None:
    lines = [line["rho"] for line in record.log if line.get("rho")]
    if len(lines) < len(record.log) or not lines:
        return None
    epochs, marks = _epochs_and_stages(record.log)
    series, means = [], []
    for colour, group in enumerate(GROUPS):
        if lines[-1].get(group) is not None:
            means.append(f"{group} {lines[0][group]:.3f} → {lines[-1][group]:.3f}")
            rho = [rounded(line[group]) for line in lines]
            series.append(Series(group, "line", colour, epochs, rho))
    told = f"Mean ρ of the groups, first and last epoch: {'; '.join(means)}."
    axis = Axis("mean ρ", low=0, high=1)
    return Chart("rho-training", "ρ while training", told, EPOCH, axis, series, marks)


def _reliability(record: Record) -> Chart | None:
    bins = record.measured["reliability"]
    if not any(b["images"] for b in bins):
        return None
    sure, right = record.measured["confidence"], record.metrics["top1"]
    lean = "too sure" if sure > right else "not sure enough"
    lean = "about right" if abs(sure - right) < 0.01 else lean
    told = (
        f"Mean confidence {percent(sure)} %, accuracy {percent(right)} %: on the whole {lean}. "
        f"Expected calibration error {percent(record.metrics['ece'])} %."
    )
    accuracy = Series(
        "accuracy",
        "bars",
        0,
        [rounded(50 * (b["lower"] + b["upper"])) or 0.0 for b in bins],
        percents([b["accuracy"] for b in bins]),
        notes=[counted(b["images"], "test sample") for b in bins],
    )
    series = [accuracy, AS_SURE_AS_RIGHT]
    return Chart("reliability", "Reliability", told, CONFIDENCE, PERCENT, series)


def _compared_reliability(runs: Mapping[str, Record]) -> Chart:
    series = [AS_SURE_AS_RIGHT]
    for colour, (label, record) in enumerate(runs.items()):
        filled = [b for b in record.measured["reliability"] if b["images"]]
        x, y = (percents([b[key] for b in filled]) for key in ("confidence", "accuracy"))
        series.append(Series(label, "line", colour, [v or 0.0 for v in x], y))
    parts = [f"{label} {percent(record.metrics['ece'])} %" for label, record in runs.items()]
    told = f"Expected calibration error: {', '.join(parts)}."
    return Chart("reliability", "Reliability", told, CONFIDENCE, PERCENT, series)


def _map(record: Record) -> Chart | None:
    found = record.measured["map"]
    if found is None:
        return None
    rows, names = found["rows"], record.class_names
    if len(names) <= BY_CLASS:
        labels, colours = names, list(range(len(names)))
    else:
        labels = [IN_WORDS[group] for group in GROUPS]
        colours = [GROUPS.index(group) for group in record.class_groups]
    series = []
    for colour, label in enumerate(labels):
        of = [row for row in rows if colours[row[2]] == colour]
        if of:
            notes = ["recognised" if t == p else f"taken for {names[p]}" for _, _, t, p in of]
            x, y, classes = ([row[i] for row in of] for i in range(3))
            series.append(Series(label, "points", colour, x, y, classes=classes, notes=notes))
    wrong = sum(true != predicted for *_, true, predicted in rows)
    told = (
        f"{len(rows):,} of {found['of']:,} test samples, {wrong:,} of them taken for another "
        "class. Samples that lie together have features of similar direction (t-SNE); distances "
        "between groups mean little."
    )
    blank = Axis("", numbers=False)
    return Chart("map", "Map of the test features", told, blank, blank, series)


def _tail(record: Record) -> Chart:
    order = sorted(range(len(record.class_counts)), key=lambda c: (-record.class_counts[c], c))
    ranks = {c: rank for rank, c in enumerate(order, 1)}
    tail = record.tail
    told = (
        f"{counted(tail.classes, 'class', 'classes')}, {tail.images:,} training samples: the "
        f"largest class has {tail.largest:,}, the smallest {tail.smallest:,}. Gini coefficient "
        f"{tail.gini:.2f}, where 0 is balanced."
    )
    series = [
        Series(
            s.name, s.kind, s.colour, [ranks[c] for c in s.classes or ()], s.x, classes=s.classes
        )
        for s in _by_group(record, [ranks[c] for c in range(len(order))])
    ]
    axes = Axis("classes, the largest first", low=0), Axis("training images", log=True)
    return Chart("tail", "The dataset's tail", told, *axes, series)


def _by_group(record: Record, values: Sequence[float | None]) -> list[Series]:
    """One dot a class against its training images, a series for each group that has a dot."""
    series = []
    for colour, group in enumerate(GROUPS):
        of_group = [
            value if of == group else None
            for value, of in zip(values, record.class_groups, strict=True)
        ]
        series.append(_dots(record, IN_WORDS[group], colour, of_group))
    return [one for one in series if one.x]


def _dots(record: Record, name: str, colour: int, values: Sequence[float | None]) -> Series:
    """One dot for each class that has a value; one without training images stands left of those
    with one."""
    members = [c for c, value in enumerate(values) if value is not None]
    members.sort(key=lambda c: (record.class_counts[c], c))
    x = [max(float(record.class_counts[c]), 0.5) for c in members]
    return Series(name, "points", colour, x, [values[c] for c in members], classes=members)


def trend(
    name: str, class_counts: Sequence[int], values: Sequence[float | None], colour: int
) -> Series:
    """Return the mean over classes of similar size, in bins of equal width in log n."""
    pairs = [(max(n, 0.5), v) for n, v in zip(class_counts, values, strict=True) if v is not None]
    if not pairs:
        return Series(name, "line", colour, [], [])
    low, high = (math.log(f(n for n, _ in pairs)) for f in (min, max))
    bins: dict[int, list[tuple[float, float]]] = {}
    for n, value in pairs:
        share = (math.log(n) - low) / (high - low) if high > low else 0.0
        bins.setdefault(min(int(share * TREND_BINS), TREND_BINS - 1), []).append(
            (math.log(n), value)
        )
    means = [
        (math.exp(sum(x for x, _ in of) / len(of)), sum(y for _, y in of) / len(of))
        for _, of in sorted(bins.items())
    ]
    x, y = ([rounded(pair[i]) or 0.0 for pair in means] for i in (0, 1))
    return Series(name, "line", colour, x, y)


def _epochs_and_stages(log: Sequence[dict[str, Any]]) -> tuple[list[int], list[tuple[float, str]]]:
    """Epochs counted over the whole run, and where each stage begins."""
    marks, before = [], 0
    for stage, lines in groupby(log, key=lambda line: line["stage"]):
        marks.append((float(before), str(stage)))
        before += len(list(lines))
    return list(range(1, len(log) + 1)), marks


def _tested(record: Record, metric: str) -> tuple[list[int], list[float | None]]:
    """The epochs after which the run was tested, and a metric in percent."""
    tests = {at: line["test"] for at, line in enumerate(record.log, 1) if line.get("test")}
    return list(tests), percents([test[metric] for test in tests.values()])

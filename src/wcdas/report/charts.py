"""The charts of one run."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch

from wcdas.evaluation.table import percent
from wcdas.groups import GROUPS, IN_WORDS, group_means
from wcdas.report.angles import BINS
from wcdas.report.chart import Axis, Chart, Series, percents, rounded
from wcdas.report.record import Record
from wcdas.report.trend import trend

TRAINING_IMAGES = Axis("training images of the class", log=True)
PERCENT = Axis("accuracy in %", low=0, high=100)
BY_CLASS = 10  # up to so many classes the map shows each in a colour of its own
TREND_FROM = 30


def accuracy_chart(record: Record) -> Chart:
    values = percents(record.accuracy)
    series = by_group(record, values)
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


def rho_chart(record: Record) -> Chart | None:
    rho = record.measured["rho"]
    if rho is None:
        return None
    means = group_means(torch.tensor(rho, dtype=torch.float64), torch.tensor(record.class_counts))
    parts = [f"{group} {mean:.3f}" for group, mean in means.items() if mean is not None]
    told = f"Mean ρ: {', '.join(parts)}."
    axis = Axis("concentration ρ", low=0, high=1)
    series = by_group(record, rho)
    return Chart("rho", "Concentration ρ of each class", told, TRAINING_IMAGES, axis, series)


def angles_chart(record: Record) -> Chart | None:
    angles = record.measured["angles"]
    if angles is None:
        return None
    width = 180 / BINS
    series, told = [], []
    for colour, group in enumerate(GROUPS):
        if not sum(angles["own"][group]):
            continue
        own, other = angles["mean_own"][group], angles["mean_other"][group]
        told.append(f"{group} {own:.0f}° to the own class, {other:.0f}° to the nearest other")
        for kind, name in (("own", "own class"), ("other", "nearest other")):
            counts = angles[kind][group]
            series.append(
                Series(
                    f"{group}, {name}",
                    "steps",
                    colour,
                    [width * (i + 0.5) for i in range(BINS)],
                    [rounded(100 * n / sum(counts)) for n in counts],
                    dashed=kind == "other",
                )
            )
    return Chart(
        "angles",
        "Angles between features and class weights",
        f"Mean angle of the test samples: {'; '.join(told)}.",
        Axis("angle in degrees", low=0, high=180),
        Axis("share of the group in %", low=0),
        series,
    )


def loss_chart(record: Record) -> Chart | None:
    if not record.log:
        return None
    epochs, marks = epochs_and_stages(record.log)
    losses = [line["loss"] for line in record.log]
    told = f"From {losses[0]:.3g} to {losses[-1]:.3g} in {counted(len(epochs), 'epoch')}" + (
        f", stages {' → '.join(name for _, name in marks)}." if len(marks) > 1 else "."
    )
    series = [Series("training loss", "line", 6, epochs, [rounded(v) for v in losses])]
    axes = Axis("epoch", low=0), Axis("loss", low=0)
    return Chart("loss", "Training loss", told, *axes, series, marks)


def learning_chart(record: Record) -> Chart | None:
    if not record.log:
        return None
    epochs, marks = epochs_and_stages(record.log)
    fitted = percents([line.get("train_accuracy") for line in record.log])
    series = []
    if any(value is not None for value in fitted):
        series.append(Series("training images", "line", 6, epochs, fitted, dashed=True))
    tests = [
        (at, line["test"]) for at, line in zip(epochs, record.log, strict=True) if line.get("test")
    ]
    for colour, group in enumerate(GROUPS):
        values = percents([test[group] for _, test in tests])
        if any(value is not None for value in values):
            series.append(Series(f"test, {group}", "line", colour, [at for at, _ in tests], values))
    told = "Accuracy while training. The last epoch is the result, whatever came before."
    if any(s.get("mixup") or s.get("cutmix") for s in record.run["stages"].values()):
        told += " Training images are mixed two by two, and one of the two labels counts."
    axes = Axis("epoch", low=0), PERCENT
    return Chart("learning", "Accuracy while training", told, *axes, series, marks)


def rho_learning_chart(record: Record) -> Chart | None:
    lines = [line for line in record.log if line.get("rho")]
    if len(lines) < len(record.log) or not lines:
        return None
    epochs, marks = epochs_and_stages(record.log)
    present = [group for group in GROUPS if lines[-1]["rho"].get(group) is not None]
    told = "Mean ρ of the groups, first and last epoch: " + "; ".join(
        f"{g} {lines[0]['rho'][g]:.3f} → {lines[-1]['rho'][g]:.3f}" for g in present
    )
    series = [
        Series(g, "line", GROUPS.index(g), epochs, [rounded(line["rho"][g]) for line in lines])
        for g in present
    ]
    axes = Axis("epoch", low=0), Axis("mean ρ", low=0, high=1)
    return Chart("rho-training", "ρ while training", f"{told}.", *axes, series, marks)


def reliability_chart(record: Record) -> Chart | None:
    bins = record.measured["reliability"]
    filled = [b for b in bins if b["images"]]
    if not filled:
        return None
    sure, right = record.measured["confidence"], record.metrics["top1"]
    lean = "too sure" if sure > right else "not sure enough"
    lean = "about right" if abs(sure - right) < 0.01 else lean
    told = (
        f"Mean confidence {percent(sure)} %, accuracy {percent(right)} %: on the whole {lean}. "
        f"Expected calibration error {percent(record.metrics['ece'])} %."
    )
    series = [
        Series(
            "accuracy",
            "bars",
            0,
            [rounded(50 * (b["lower"] + b["upper"])) or 0.0 for b in bins],
            percents([b["accuracy"] for b in bins]),
            notes=[counted(b["images"], "test sample") for b in bins],
        ),
        Series("as sure as right", "line", 6, [0, 100], [0, 100], dashed=True),
    ]
    axes = Axis("confidence in %", low=0, high=100), PERCENT
    return Chart("reliability", "Reliability", told, *axes, series)


def map_chart(record: Record) -> Chart | None:
    found = record.measured["map"]
    if found is None:
        return None
    rows, names = found["rows"], record.class_names
    alone = len(names) <= BY_CLASS
    labels = names if alone else [IN_WORDS[group] for group in GROUPS]
    series = []
    for colour, label in enumerate(labels):
        of = [
            r
            for r in rows
            if (r[2] if alone else GROUPS.index(record.class_groups[r[2]])) == colour
        ]
        if not of:
            continue
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


def tail_chart(record: Record) -> Chart:
    order = sorted(range(len(record.class_counts)), key=lambda c: (-record.class_counts[c], c))
    ranks: list[float | None] = [None] * len(order)
    for rank, c in enumerate(order, 1):
        ranks[c] = rank
    tail = record.tail
    told = (
        f"{counted(tail.classes, 'class', 'classes')}, {tail.images:,} training samples: the "
        f"largest class has {tail.largest:,}, the smallest {tail.smallest:,}. Gini coefficient "
        f"{tail.gini:.2f}, where 0 is balanced."
    )
    series = [
        Series(s.name, s.kind, s.colour, s.y, s.x, classes=s.classes)  # type: ignore[arg-type]
        for s in by_group(record, ranks)
    ]
    axes = Axis("classes, the largest first", low=0), Axis("training images", log=True)
    return Chart("tail", "The dataset's tail", told, *axes, series)


def run_charts(record: Record) -> dict[str, Chart]:
    """By name, those there is something to show for."""
    builders = (
        accuracy_chart,
        rho_chart,
        angles_chart,
        learning_chart,
        loss_chart,
        rho_learning_chart,
        reliability_chart,
        map_chart,
        tail_chart,
    )
    found = [chart for build in builders if (chart := build(record)) is not None]
    return {chart.name: chart for chart in found}


def by_group(record: Record, values: Sequence[float | None]) -> list[Series]:
    """One dot a class against its training images, a series for each group that has a dot."""
    series = []
    for colour, group in enumerate(GROUPS):
        members = [
            c for c, of in enumerate(record.class_groups) if of == group and values[c] is not None
        ]
        members.sort(key=lambda c: (record.class_counts[c], c))
        if members:
            x = [on_log_axis(record.class_counts[c]) for c in members]
            y = [values[c] for c in members]
            series.append(Series(IN_WORDS[group], "points", colour, x, y, classes=members))
    return series


def on_log_axis(count: int) -> float:
    """A class without training images stands left of those with one."""
    return max(float(count), 0.5)


def epochs_and_stages(log: Sequence[dict[str, Any]]) -> tuple[list[int], list[tuple[float, str]]]:
    """Epochs counted over the whole run, and where each stage begins."""
    marks, before = [], 0
    for stage, lines in groupby(log, key=lambda line: line["stage"]):
        marks.append((float(before), str(stage)))
        before += len(list(lines))
    return list(range(1, len(log) + 1)), marks


def counted(n: int, one: str, several: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else several or one + 's'}"

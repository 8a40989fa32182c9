"""The charts of a page as numbers: those of one run, and those of several beside each other.

The page draws them, and the files that somebody asks for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from wcdas.groups import GROUPS, IN_WORDS
from wcdas.report.measure import ANGLE_BINS
from wcdas.report.record import Record

# Told apart by colour-blind readers, and at least 3 : 1 against the page in both themes.
LIGHT = (
    "#0072b2", "#c14a00", "#00795a", "#a8487f", "#6b5b00",
    "#5a4fcf", "#1a1a1a", "#b00020", "#00707a", "#7a4b1f",
)  # fmt: skip
DARK = (
    "#56b4e9", "#ff9a57", "#3fcfa3", "#e39bc4", "#d6c94a",
    "#a79bff", "#f0f0f0", "#ff8a80", "#5ad1dc", "#d9a066",
)  # fmt: skip


@dataclass(frozen=True)
class Axis:
    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    numbers: bool = True  # False: places on a map, which mean nothing by themselves


@dataclass(frozen=True)
class Series:
    """Numbers under one name; `classes` says which class each point is of, `notes` what hovering
    adds. `colour` counts in the palette."""

    name: str
    kind: Literal["points", "line", "steps", "bars"]
    colour: int
    x: Sequence[float]
    y: Sequence[float | None]
    dashed: bool = False
    classes: Sequence[int] | None = None
    notes: Sequence[str] | None = None


@dataclass(frozen=True)
class Chart:
    """`marks` are vertical lines with a name."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[tuple[float, str]] = ()


TRAINING_IMAGES = Axis("training images of the class", log=True)
PERCENT = Axis("accuracy in %", low=0, high=100)
EPOCH = Axis("epoch", low=0)
BLANK = Axis("", numbers=False)
# Title and axes of the charts, in the order of the page.
FRAMES = {
    "accuracy": ("Accuracy of each class", TRAINING_IMAGES, PERCENT),
    "rho": (
        "Concentration ρ of each class",
        TRAINING_IMAGES,
        Axis("concentration ρ", low=0, high=1),
    ),
    "angles": (
        "Angles between features and class weights",
        Axis("angle in degrees", low=0, high=180),
        Axis("share of the group in %", low=0),
    ),
    "learning": ("Accuracy while training", EPOCH, PERCENT),
    "loss": ("Training loss", EPOCH, Axis("loss", low=0)),
    "rho-training": ("ρ while training", EPOCH, Axis("mean ρ", low=0, high=1)),
    "reliability": ("Reliability", Axis("confidence in %", low=0, high=100), PERCENT),
    "map": ("Map of the test features", BLANK, BLANK),
    "tail": (
        "The dataset's tail",
        Axis("classes, the largest first", low=0),
        Axis("training images", log=True),
    ),
}
AS_SURE_AS_RIGHT = Series("as sure as right", "line", 6, [0, 100], [0, 100], dashed=True)
BY_CLASS = 10  # up to so many classes the map shows each in a colour of its own
TREND_FROM, TREND_BINS = 30, 12  # classes that have a line of their mean, and its points


def run_charts(record: Record) -> dict[str, Chart]:
    """Return the charts of a run by name, those there is something to show for."""
    series = {
        "accuracy": _accuracy(record),
        "rho": _by_group(record, rho) if (rho := record.measured["rho"]) else None,
        "angles": _angles(record),
        "learning": _learning(record) if record.log else None,
        "loss": [_loss(record, "training loss", 6)] if record.log else None,
        "rho-training": _rho_training(record),
        "reliability": _reliability(record),
        "map": _map(record),
        "tail": _tail(record),
    }
    marks = _stages(record.log)
    return {
        name: Chart(name, *FRAMES[name], found, marks if FRAMES[name][1] is EPOCH else ())
        for name, found in series.items()
        if found is not None
    }


def compared_charts(runs: Mapping[str, Record], same_classes: bool) -> dict[str, Chart]:
    """Return the charts of several runs by name, a colour for each run; what is told of single
    classes only where the runs have the same ones."""
    coloured = [(record, label, colour) for colour, (label, record) in enumerate(runs.items())]
    series = {
        "learning": [_tested(*run, run[0].metrics["headline"]) for run in coloured],
        "loss": [_loss(*run) for run in coloured],
        "reliability": [AS_SURE_AS_RIGHT, *(_confidence(*run) for run in coloured)],
    }
    if same_classes:
        series = {
            "accuracy": [one for run in coloured for one in _dots_and_trend(*run)],
            "rho": [_dots(*run, rho) for run in coloured if (rho := run[0].measured["rho"])],
        } | series
    return {name: Chart(name, *FRAMES[name], found) for name, found in series.items() if found}


def _accuracy(record: Record) -> list[Series]:
    values = percents(record.accuracy)
    return _by_group(record, values) + _trend(record, "mean", 6, values)


def _dots_and_trend(record: Record, label: str, colour: int) -> list[Series]:
    values = percents(record.accuracy)
    trend = _trend(record, f"{label}, mean", colour, values)
    return [_dots(record, label, colour, values), *trend]


def _angles(record: Record) -> list[Series] | None:
    angles = record.measured["angles"]
    if angles is None:
        return None
    middles = [180 / ANGLE_BINS * (i + 0.5) for i in range(ANGLE_BINS)]
    series = []
    for colour, group in enumerate(GROUPS):
        if not sum(angles["own"][group]):
            continue
        for kind, name in (("own", "own class"), ("other", "nearest other")):
            counts = angles[kind][group]
            shares = [rounded(100 * n / sum(counts)) for n in counts]
            dashed = kind == "other"
            series.append(Series(f"{group}, {name}", "steps", colour, middles, shares, dashed))
    return series


def _learning(record: Record) -> list[Series]:
    fitted = percents([line.get("train_accuracy") for line in record.log])
    epochs = list(range(1, len(fitted) + 1))
    series = [
        Series("training images", "line", 6, epochs, fitted, dashed=True),
        *(_tested(record, f"test, {group}", i, group) for i, group in enumerate(GROUPS)),
    ]
    return [one for one in series if any(value is not None for value in one.y)]


def _tested(record: Record, name: str, colour: int, metric: str) -> Series:
    """A metric in percent after the epochs that ended with a test."""
    tests = {at: line["test"] for at, line in enumerate(record.log, 1) if line.get("test")}
    values = percents([test[metric] for test in tests.values()])
    return Series(name, "line", colour, list(tests), values)


def _loss(record: Record, name: str, colour: int) -> Series:
    losses = [rounded(line["loss"]) for line in record.log]
    return Series(name, "line", colour, list(range(1, len(losses) + 1)), losses)


def _rho_training(record: Record) -> list[Series] | None:
    lines = [line["rho"] for line in record.log if line.get("rho")]
    if len(lines) < len(record.log) or not lines:
        return None
    epochs = list(range(1, len(lines) + 1))
    return [
        Series(group, "line", colour, epochs, [rounded(line[group]) for line in lines])
        for colour, group in enumerate(GROUPS)
        if lines[-1].get(group) is not None
    ]


def _reliability(record: Record) -> list[Series] | None:
    bins = record.measured["reliability"]
    if not any(b["images"] for b in bins):
        return None
    middles = [rounded(50 * (b["lower"] + b["upper"])) or 0.0 for b in bins]
    accuracy = percents([b["accuracy"] for b in bins])
    notes = [counted(b["images"], "test sample") for b in bins]
    return [Series("accuracy", "bars", 0, middles, accuracy, notes=notes), AS_SURE_AS_RIGHT]


def _confidence(record: Record, name: str, colour: int) -> Series:
    filled = [b for b in record.measured["reliability"] if b["images"]]
    x, y = (percents([b[key] for b in filled]) for key in ("confidence", "accuracy"))
    return Series(name, "line", colour, [v or 0.0 for v in x], y)


def _map(record: Record) -> list[Series] | None:
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
    return series


def _tail(record: Record) -> list[Series]:
    order = sorted(range(len(record.class_counts)), key=lambda c: (-record.class_counts[c], c))
    ranks = {c: rank for rank, c in enumerate(order, 1)}
    return [
        replace(one, x=[ranks[c] for c in one.classes or ()], y=one.x)
        for one in _by_group(record, [0.0] * len(order))
    ]


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


def _trend(record: Record, name: str, colour: int, values: Sequence[float | None]) -> list[Series]:
    """Of many classes, the mean over those of similar size, in bins of equal width in log n."""
    if len(values) < TREND_FROM:
        return []
    counts = [math.log(max(n, 0.5)) for n in record.class_counts]
    pairs = [(n, value) for n, value in zip(counts, values, strict=True) if value is not None]
    low, high = (f((n for n, _ in pairs), default=0.0) for f in (min, max))
    bins: dict[int, list[tuple[float, float]]] = {}
    for n, value in pairs:
        share = (n - low) / (high - low) if high > low else 0.0
        bins.setdefault(min(int(share * TREND_BINS), TREND_BINS - 1), []).append((n, value))
    means = [
        [sum(column) / len(of) for column in zip(*of, strict=True)]
        for _, of in sorted(bins.items())
    ]
    x, y = [rounded(math.exp(n)) or 0.0 for n, _ in means], [rounded(mean) for _, mean in means]
    return [Series(name, "line", colour, x, y)]


def _stages(log: Sequence[dict[str, Any]]) -> list[tuple[float, str]]:
    """Where each stage begins, in epochs of the whole run."""
    marks, before = [], 0
    for stage, lines in groupby(log, key=lambda line: line["stage"]):
        marks.append((float(before), str(stage)))
        before += len(list(lines))
    return marks


def rounded(value: float | None, digits: int = 4) -> float | None:
    """Keep the digits that can be seen; the others would only make the file larger."""
    return None if value is None else float(f"{value:.{digits}g}")


def percents(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else rounded(100 * value) for value in values]


def signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def counted(n: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun: 1 image, 1,000 images."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"

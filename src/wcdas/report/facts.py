"""The numbers of a run that the rules on what to try next look at."""

import inspect
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wcdas.backbones import BACKBONES
from wcdas.losses import LOSSES
from wcdas.methods import METHODS
from wcdas.report.record import Record
from wcdas.run.automatic import PRETRAINED, trained_on
from wcdas.run.spec import SelectionConfig

MEASURED = 3  # test images of a class, below which its accuracy says nothing
FAR_BELOW = 0.20  # the mean over classes
SURE = 2.0  # standard errors


@dataclass(frozen=True)
class Confusion:
    true: str
    predicted: str
    images: int
    of: int


@dataclass(frozen=True)
class Failing:
    """A class that is far below the others, and what most of its mistakes are taken for."""

    name: str
    accuracy: float
    test_images: int
    train_images: int
    taken_for: str
    taken: int


@dataclass(frozen=True)
class Facts:
    """Accuracies are shares of 1; None is not measured, or no such class."""

    run: str  # as a shell takes them
    recipe: str  # its run.toml
    beside: str  # where a baseline of it would be found
    method: str
    many: float | None
    few: float | None
    headline: float | None
    headline_error: float | None
    few_error: float | None
    prior: str  # of the logits: train, uniform or none
    prior_in_loss: bool
    pretrained: bool
    frozen: bool
    network: str  # the settings that start from pretrained weights; empty for features
    ece: float | None
    confidence: float | None
    top1: float | None
    holdout: float
    held_out: int | None  # images that the temperature was fitted on
    first_stage: str
    last_stage: str
    can_mix: bool  # images of two classes in the first stage, which does not yet
    can_smooth: bool  # labels in the last stage, which does not yet
    epochs: int  # of the first stage, and of those that take a share of them
    train_accuracy: float | None  # when the first stage ended
    late_fall: float | None  # of the loss in the last tenth of the first stage, as a share
    images: int  # trained on
    batch: int  # the largest of the stages
    warned: bool  # while it trained
    failing: tuple[Failing, ...]  # the worst first
    mean: float | None  # accuracy over classes
    never_predicted: int
    barely_tested: int  # classes with test images, but fewer than three
    untested: int
    classes: int
    confusion: Confusion | None
    baseline: Mapping[str, float | None] | None  # many, few and headline

    def train(self, change: str) -> str:
        """Return the command that repeats the run with one thing changed."""
        return f"wcdas train --recipe {self.recipe} {change}"

    def sweep(self, *methods: str) -> str:
        """Return the command that trains methods as the run was trained, over seeds."""
        return f"wcdas sweep --recipe {self.recipe} --methods {','.join(methods)} --seeds 3"


def facts_of(record: Record, baseline: Record | None) -> Facts:
    run, metrics = record.run, record.metrics
    stages, holdout = run["stages"], run["calibration"]["holdout"]
    folder = record.folder if record.folder.name.strip(".") else record.folder.resolve()
    method = METHODS.get(record.method)  # None for one that a script registers
    unmixed, own_loss = (method.unmixed, method.own_loss) if method else ((), ())
    first, last = record.log[0]["stage"] if record.log else "", list(stages)[-1]
    lines = [line for line in record.log if line["stage"] == first]
    counts = torch.tensor(run["info"]["class_counts"])
    return Facts(
        run=shlex.quote(str(record.folder)),
        recipe=record.recipe,
        beside=shlex.quote(str(folder.with_name(f"{folder.name}-softmax"))),
        method=record.method,
        **_accuracies(record),
        headline_error=record.standard_error(),
        few_error=record.standard_error("few"),
        prior=run["info"]["prior"],
        prior_in_loss=any(map(_has_prior, stages.values()))
        or (method is not None and bool(own_loss) and method.prior == "uniform"),
        pretrained=bool(run["backbone"]["weights"]),
        frozen=bool(run.get("frozen")),
        network=_pretrained(run["backbone"]["name"]),
        ece=metrics["ece"],
        confidence=record.measured["confidence"],
        top1=metrics["top1"],
        holdout=holdout,
        held_out=metrics.get("held_out"),
        first_stage=first,
        last_stage=last,
        can_mix=bool(lines)
        and not (first in unmixed or stages[first]["mixup"] or stages[first]["cutmix"]),
        can_smooth=last not in own_loss and _can_smooth(stages[last]),
        epochs=stages[first]["epochs"] if lines else 0,
        train_accuracy=lines[-1].get("train_accuracy") if lines else None,
        late_fall=_late_fall([line["loss"] for line in lines]),
        images=trained_on(counts, SelectionConfig(**run["selection"]), holdout),
        batch=max((stage.get("batch_size", 0) for stage in stages.values()), default=0),
        warned=bool(record.warnings),
        failing=tuple(failing_classes(record)),
        mean=metrics["balanced_accuracy"],
        never_predicted=metrics["never_predicted"],
        barely_tested=sum(0 < n < MEASURED for n in record.test_counts),
        untested=record.accuracy.count(None),
        classes=len(record.class_names),
        confusion=_worst_confusion(record),
        baseline=None if baseline is None else _accuracies(baseline),
    )


def _accuracies(record: Record) -> dict[str, Any]:
    groups = {group: record.metrics[group] for group in ("many", "few")}
    return groups | {"headline": record.headline}


def failing_classes(record: Record) -> list[Failing]:
    """Return the classes surely 20 points or more below the mean over classes, the worst first."""
    mean: float | None = record.metrics["balanced_accuracy"]
    if mean is None:
        return []
    most: dict[int, tuple[int, int]] = {}  # images and class that a class is taken for
    for true, other, n in record.metrics["confusion"]:
        if true != other and n > most.get(true, (0, 0))[0]:
            most[true] = n, other
    found = []
    for i, accuracy in enumerate(record.accuracy):
        tested = record.test_counts[i]
        if tested < MEASURED or accuracy is None or accuracy > mean - FAR_BELOW:
            continue
        if _at_most(accuracy, tested) < mean:
            taken, other = most[i]
            names, images = record.class_names, record.class_counts[i]
            found.append(Failing(names[i], accuracy, tested, images, names[other], taken))
    return sorted(found, key=lambda one: (one.accuracy, -one.test_images))


def _at_most(share: float, n: int) -> float:
    """The upper end of Wilson's interval for a share measured on n images."""
    z = SURE
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (share + z * z / (2 * n) + spread) / (1 + z * z / n)


def _pretrained(backbone: str) -> str:
    """A backbone of this package has no pretrained weights, so another takes its place."""
    if backbone == "identity":
        return ""
    name = f"backbone.name={PRETRAINED['cpu'][0]} " if backbone in BACKBONES else ""
    return f"{name}backbone.weights=pretrained"


def _has_prior(stage: Mapping[str, Any]) -> bool:
    loss, options = stage.get("loss", "cross-entropy"), stage.get("loss_options", {})
    return bool(stage.get("prior") or LOSSES[loss].prior_strength(**options))


def _can_smooth(stage: Mapping[str, Any]) -> bool:
    if stage["trains"] == "nothing" or stage["label_smoothing"]:
        return False
    return "label_smoothing" in inspect.signature(LOSSES[stage["loss"]]).parameters


def _late_fall(losses: Sequence[float]) -> float | None:
    if len(losses) < 10:
        return None
    before, last = losses[-1 - len(losses) // 10], losses[-1]
    return (before - last) / before if before > 0 else 0.0


def _worst_confusion(record: Record) -> Confusion | None:
    pairs = record.measured["confusions"]
    if not pairs:
        return None
    names, worst = record.class_names, pairs[0]
    return Confusion(names[worst["true"]], names[worst["predicted"]], worst["images"], worst["of"])

"""A run that does not learn says so: from the log of a stage to a sentence with its remedy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from wcdas.heads import AngularHead, ShardedWCDASHead
from wcdas.losses.logit_adjustment import LogitAdjustmentLoss
from wcdas.run.stage import StageTraining
from wcdas.run.step import Step

WINDOW = 3  # epochs that have to agree, all after the warm-up
# Since then: to speak while a stage goes on, also as a share of its epochs; and when it ends.
SURE_STEPS, SURE_SHARE, LAST_STEPS = 200, 0.05, 30
NEAR = 0.02  # chance: of its loss, and of the way from its accuracy to all images right
NOT_FALLEN = 0.95  # of the loss half way to here, where chance has none
STILL = 0.004  # a loss that falls by less from one window to the next stands still
BLOWN_UP, FALLEN = 2.0, 0.9  # of the loss of equal logits; of the loss of chance
USUAL_RATES = (0.01, 0.1)  # to fine-tune, and from scratch
BOUND, GOOD_PART = 0.01, 0.2  # how near ρ is to 0 or 1, and of how many classes
AT_THE_BOUND = 1.01  # times the least that a trained s can be
HALF_RIGHT = 0.5  # of the training images; then what sits at a bound does little harm

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Watched:
    """The facts of a stage that its log is read with.

    Args:
        name: of the stage.
        epochs: it has in all.
        steps: of an epoch.
        images: an epoch draws.
        warmup: epochs in which the rate still rises.
        lr: its highest rate.
        lr_key: the setting of that rate.
        scale: what is to know of the head's s; None where it is not trained.
    """

    name: str
    epochs: int
    steps: int
    images: int
    warmup: float
    lr: float
    lr_key: str
    scale: "TrainedScale | None" = None


@dataclass(frozen=True)
class TrainedScale:
    """Where s should start, the least it can be, and the settings that start it there."""

    start: float
    least: float
    remedy: str


@dataclass(frozen=True)
class Chance:
    """`loss` and `untrained` are None where a loss cannot be read so.

    Args:
        guess: the accuracy of guessing, 1/C.
        accuracy: of always answering the class that is drawn most.
        loss: of answering with the class shares.
        untrained: the loss of equal logits, from which most heads start.
    """

    guess: float
    accuracy: float
    loss: float | None = None
    untrained: float | None = None


def diagnose(stage: StageTraining, lines: Sequence[Line]) -> tuple[str, str] | None:
    """Find a sign in the log of a stage so far that it does not learn: a word and a sentence."""
    shares = stage.sampler.class_probabilities(len(lines) - 1, stage.stage.epochs)
    level = chance(stage.step, shares, stage.statistics.counts_right)
    return symptom(_watched(stage), level, lines)


def _watched(stage: StageTraining) -> Watched:
    stages = [(name, other) for name, other in stage.run.stages if other.epochs]
    rates = {other.lr for _, other in stages if other.optimizer == "fresh"}
    first = next(name for name, other in stages if other is stage.first)
    return Watched(
        stage.name,
        stage.stage.epochs,
        stage.steps,
        stage.steps * stage.data.batch_size,
        max(0.0, stage.first.warmup - stage.before),
        stage.first.lr,
        "lr" if len(rates) == 1 else f"stages.{first}.lr",
        _trained_scale(stage),
    )


def _trained_scale(stage: StageTraining) -> TrainedScale | None:
    head = stage.model.head
    if not isinstance(head, AngularHead) or not head.scale_is_trainable:
        return None
    start, least = head.auto_scale, float(head.scale_units[0])
    # A run that was given a start of s would keep it with another start of the head.
    own = f" --set head.scale_init={start:.0f}" if "scale_init" in stage.run.config.head else ""
    return TrainedScale(start, least, f"--set head.start=auto{own}")


def chance(step: Step, shares: Tensor, counts_right: bool) -> Chance:
    """Return the levels of a stage that draws the classes with these shares, which sum to one.

    For cross-entropy, constant logits do best at the entropy of the mean target, whatever prior is
    added to them; mixing images leaves that mean as it is, smoothing moves it. Margins, a teacher
    and losses of a method's own have no such level. Where nobody counts the right answers, an
    angular head is held against equal logits: with a small scale it may know classes at a loss
    above the entropy.
    """
    levels, head = (1 / len(shares), float(shares.max())), step.model.head
    if step.training_step is not None or head.has_margin or step.is_taught:
        return Chance(*levels)
    added = torch.zeros_like(shares) if step.log_prior is None else step.log_prior.to(shares)
    if isinstance(step.loss, LogitAdjustmentLoss):
        added = step.loss.tau * step.loss.log_prior.to(shares)
    elif step.loss is not None:
        return Chance(*levels)
    smoothing = step.stage.label_smoothing
    target = (1 - smoothing) * shares + smoothing / len(shares)
    untrained = float(-(target * added.log_softmax(0)).sum())
    if isinstance(head, AngularHead | ShardedWCDASHead) and not counts_right:
        return Chance(*levels, untrained, untrained)
    return Chance(*levels, float(torch.special.entr(target).sum()), untrained)


def symptom(stage: Watched, chance: Chance, lines: Sequence[Line]) -> tuple[str, str] | None:
    """Say what is wrong, in a word and a sentence; `lines` are those of the stage so far."""
    since, ended = len(lines) - stage.warmup, len(lines) == stage.epochs
    epochs = max(WINDOW, 0 if ended else SURE_SHARE * stage.epochs)
    if since < epochs or since * stage.steps < (LAST_STEPS if ended else SURE_STEPS):
        return None
    for name, rule in RULES:
        told = rule(stage, chance, lines)
        if told is not None:
            return name, f"stage {stage.name}, epoch {len(lines)} of {stage.epochs}: {told}"
    return None


def warnings_in(log: Sequence[Line]) -> list[str]:
    """Return the warnings over the epochs of a log."""
    return [text for line in log for text in line.get("warnings", {}).values()]


def _at_chance(stage: Watched, chance: Chance, lines: Sequence[Line]) -> str | None:
    losses = [line["loss"] for line in lines]
    accuracies = [line["train_accuracy"] for line in lines[-WINDOW:]]
    counted = None not in accuracies
    if counted and not _near(accuracies, chance.accuracy, stage.images):
        return None
    if chance.loss is not None:
        if min(losses[-WINDOW:]) < (1 - NEAR) * chance.loss:
            return None
    elif not counted:
        return None
    elif _falls(losses) or min(losses[-WINDOW:]) < NOT_FALLEN * losses[len(losses) // 2]:
        # It is no proof that such a loss falls, but only at the end may accuracy speak alone.
        guessed = _near(accuracies, chance.guess, stage.images)
        if len(lines) < stage.epochs or not guessed:
            return None
    remedy = _remedy(stage, chance, lines)
    if remedy is None:
        return None
    shown, level = [f"loss {losses[-1]:.4g}"], []
    if chance.loss is not None:
        level.append(f"{chance.loss:.4g}")
    if counted:
        shown.append(f"training accuracy {100 * accuracies[-1]:.1f} %")
        level.append(f"{100 * chance.accuracy:.1f} %")
    return (
        f"nothing is learnt yet ({', '.join(shown)}; class frequencies alone give "
        f"{' and '.join(level)}); {remedy}"
    )


def _not_moved(stage: Watched, chance: Chance, lines: Sequence[Line]) -> str | None:
    """Some classes are told apart, but all have nearly the same probability."""
    start, losses = chance.untrained, [line["loss"] for line in lines]
    if start is None or any(abs(loss - start) > NEAR * start for loss in losses[-WINDOW:]):
        return None
    remedy = _remedy(stage, chance, lines)
    if remedy is None or not _mostly_wrong(lines[-1]):
        return None
    accuracy = f"{100 * lines[-1]['train_accuracy']:.1f} %"
    return (
        f"next to nothing is learnt yet (loss {losses[-1]:.4g}, training accuracy {accuracy}; "
        f"equal logits give {start:.4g}); {remedy}"
    )


def _near(accuracies: Sequence[float], level: float, images: int) -> bool:
    """Whether none is above a level by more than little, or than such draws differ."""
    noise = math.sqrt(level * (1 - level) / images)
    return max(accuracies) <= level + max(NEAR * (1 - level), 2 * noise)


def _falls(losses: Sequence[float]) -> bool:
    k = min(WINDOW, len(losses) // 2)
    return fmean(losses[-k:]) < (1 - STILL) * fmean(losses[-2 * k : -k])


def _remedy(stage: Watched, chance: Chance, lines: Sequence[Line]) -> str | None:
    """Suggest what rate and course of a loss at chance call for; None while it may get away."""
    losses = [line["loss"] for line in lines]
    low, high = USUAL_RATES
    blown_up = chance.untrained is not None and max(losses) > BLOWN_UP * chance.untrained
    if blown_up and stage.lr >= low:
        return f"the loss has been up at {max(losses):.4g}: {_smaller_rate(stage)}"
    if stage.lr > 10 * high:
        return _smaller_rate(stage)
    falls = _falls(losses)
    if falls and len(lines) < stage.epochs:
        return None
    if stage.lr < low:
        return f"take a larger rate, --set {stage.lr_key}={max(10 * stage.lr, low):g}"
    if falls:
        epochs = f"--set stages.{stage.name}.epochs={2 * stage.epochs}"
        return f"the loss still falls: train longer, {epochs}"
    if chance.loss is not None and min(losses) < FALLEN * chance.loss:
        return f"the loss has been down at {min(losses):.4g}: {_smaller_rate(stage)}"
    if stage.scale is not None and lines[-1]["scale"] < stage.scale.start / 2:
        return (
            f"the scale of the logits, s = {lines[-1]['scale']:.3g}, is small: start it where the "
            f"head learns, {stage.scale.remedy}, or take --method softmax"
        )
    key, rate = stage.lr_key, stage.lr
    return (
        f"take a larger or a smaller rate, --set {key}={10 * rate:g} or {key}={rate / 10:g}; if "
        "neither learns, look at images and labels"
    )


def _rho_at_a_bound(stage: Watched, chance: Chance, lines: Sequence[Line]) -> str | None:
    found = lines[-1].get("rho_at_bounds")
    if found is None:
        return None
    if found["low"] >= GOOD_PART:
        return (
            f"ρ of {100 * found['low']:.0f} % of the classes is below {BOUND}, so that no feature "
            f"tells them apart; {_smaller_rate(stage)}"
        )
    if found["high"] >= GOOD_PART and _mostly_wrong(lines[-1]):
        return (
            f"ρ of {100 * found['high']:.0f} % of the classes is above {1 - BOUND}, so narrow that "
            f"few images reach them; {_smaller_rate(stage)}"
        )
    return None


def _scale_at_its_bound(stage: Watched, chance: Chance, lines: Sequence[Line]) -> str | None:
    scale = stage.scale
    if scale is None or lines[-1]["scale"] > AT_THE_BOUND * scale.least:
        return None
    if not _mostly_wrong(lines[-1]):
        return None
    small = f", or start it where the head learns, {scale.remedy}" * (scale.least < scale.start / 2)
    return (
        f"the scale of the logits, s = {lines[-1]['scale']:.3g}, has fallen to its lower bound; "
        f"{_smaller_rate(stage)}{small}"
    )


def _mostly_wrong(line: Line) -> bool:
    accuracy = line["train_accuracy"]
    return accuracy is not None and accuracy < HALF_RIGHT


def _smaller_rate(stage: Watched) -> str:
    rate = min(stage.lr / 10, USUAL_RATES[1])
    return f"take a smaller rate, --set {stage.lr_key}={rate:g}"


RULES = (
    ("chance", _at_chance),
    ("chance", _not_moved),
    ("rho", _rho_at_a_bound),
    ("scale", _scale_at_its_bound),
)

"""The learning rate over a stage, or over several that continue one optimizer."""

import math
from collections.abc import Mapping
from dataclasses import replace

from wcdas.errors import InputError
from wcdas.run.spec import Annealing, Stage


def rate(stage: Stage, progress: float, epochs: int) -> float:
    """The learning rate after `progress` of `epochs` epochs; `progress` may be a fraction."""
    if progress < stage.warmup:
        return stage.lr * (progress + 1) / (stage.warmup + 1)
    part = (progress - stage.warmup) / (epochs - stage.warmup)
    if stage.schedule == "cosine":
        return stage.lr * 0.5 * (1 + math.cos(math.pi * part))
    if stage.schedule == "step":
        passed = sum(progress >= milestone * epochs for milestone in stage.milestones)
        return stage.lr * stage.gamma**passed
    return stage.lr


def planned(stages: Mapping[str, Stage]) -> list[tuple[str, Stage]]:
    """The stages as they run: one with a `share` takes its epochs from the stage before."""
    plan: list[tuple[str, Stage]] = []
    for name, stage in stages.items():
        if stage.trains == "nothing":
            stage = replace(stage, epochs=0)
        if stage.share:
            before, first = plan[-1]
            if first.epochs < 2:
                raise InputError(
                    f"stages.{before}.epochs is {first.epochs}, but stage {name} takes a share of "
                    "them; expected at least 2, so that each has one"
                )
            taken = min(max(1, round(stage.share * first.epochs)), first.epochs - 1)
            plan[-1] = before, replace(first, epochs=first.epochs - taken)
            stage = replace(stage, epochs=taken)
        plan.append((name, stage))
    return plan


def annealed(annealing: Annealing, progress: float) -> float:
    """λ after a part of the stage, from 0 to 1."""
    iteration = progress * annealing.iterations
    value = annealing.base * (1 + annealing.gamma * iteration) ** -annealing.power
    return max(annealing.minimum, value)


def chain(stages: list[Stage], index: int) -> tuple[Stage, int, int]:
    """Return, of the stages that share an optimizer, the first, whose schedule holds for all, the
    epochs before this one, and the epochs of all."""
    first = index
    while stages[first].optimizer == "continue":
        first -= 1
    last = index + 1
    while last < len(stages) and stages[last].optimizer == "continue":
        last += 1
    epochs = [stage.epochs for stage in stages]
    return stages[first], sum(epochs[first:index]), sum(epochs[first:last])

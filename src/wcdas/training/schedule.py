"""The learning rate over a stage, or over several that continue one optimizer."""

import math

from wcdas.training.config import Stage


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


def chain(stages: list[Stage], index: int) -> tuple[Stage, int, int]:
    """Of the stages that share an optimizer and a schedule: the first, whose schedule it is, the
    epochs before this one, and the epochs of all."""
    first = index
    while stages[first].optimizer == "continue":
        first -= 1
    last = index + 1
    while last < len(stages) and stages[last].optimizer == "continue":
        last += 1
    epochs = [stage.epochs for stage in stages]
    return stages[first], sum(epochs[first:index]), sum(epochs[first:last])

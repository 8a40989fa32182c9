"""Targets, against which a loss is taken, and the reduction of the losses of a batch."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from wcdas.checks import check_shares


class MixedLabels(NamedTuple):
    """The labels of a mixup or CutMix batch: L = λ·L(first) + (1 − λ)·L(second).

    `lam` is one number for the batch, or a tensor with one per sample.
    """

    first: Tensor
    second: Tensor
    lam: float | Tensor


def loss_of(target: Tensor | MixedLabels, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """The loss of labels, or of class probabilities; of mixed labels, the mean with weight λ."""
    if not isinstance(target, MixedLabels):
        return loss(target)
    check_shares(target.lam, len(target.first))
    first, second = loss(target.first), loss(target.second)
    return target.lam * first + (1 - target.lam) * second


def reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    return losses.sum() if reduction == "sum" else losses

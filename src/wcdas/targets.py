"""What a loss is taken against, and what becomes of the losses of a batch."""

from typing import NamedTuple

from torch import Tensor


class MixedLabels(NamedTuple):
    """The labels of a mixup or CutMix batch: L = λ·L(first) + (1 − λ)·L(second).

    `lam` is one number for the batch, or a tensor with one per sample.
    """

    first: Tensor
    second: Tensor
    lam: float | Tensor


def reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    return losses.sum() if reduction == "sum" else losses

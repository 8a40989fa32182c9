"""The base of all losses: checks, float32 arithmetic, label smoothing and reduction."""

from typing import Any

import torch
from torch import Tensor, nn

from wcdas.checks import check_from_zero, check_reduction, check_target, values_are_readable
from wcdas.heads.functional.arithmetic import full_precision, without_autocast
from wcdas.targets import MixedLabels, loss_of, reduced


class Loss(nn.Module):
    """Base of all losses: what a run has to know of one before it builds it.

    `on_features` says that it takes features and stands beside a loss on logits.
    """

    on_features: bool = False

    @classmethod
    def prior_strength(cls, **options: Any) -> float | None:
        """The τ of the training prior π^τ that the loss, built with these options, adds to logits.

        None where its logits are no log probabilities under any prior.
        """
        return None


class ClassificationLoss(Loss):
    """Base of the losses on logits; a loss overrides `losses(logits, target) → (batch,)`.

    `labels` are class indices (batch,), `MixedLabels`, or class probabilities (batch, classes).
    Label smoothing ε turns them into the probabilities (1 − ε)·t + ε/C. Arithmetic is in float32,
    in float64 for float64 logits, whatever autocast says.
    """

    num_classes: int | None = None

    def __init__(self, label_smoothing: float = 0.0, reduction: str = "mean") -> None:
        super().__init__()
        check_from_zero("label_smoothing", label_smoothing, below=1)
        check_reduction(reduction)
        self.label_smoothing = label_smoothing
        self.reduction = reduction

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of each sample (N,), from logits and class probabilities (N, C)."""
        raise NotImplementedError(f"{type(self).__name__} does not define losses(logits, target)")

    def forward(self, logits: Tensor, labels: Tensor | MixedLabels) -> Tensor:
        check_logits(logits, self.num_classes)
        return reduced(loss_of(labels, lambda y: self._each(logits, y)), self.reduction)

    def _each(self, logits: Tensor, labels: Tensor) -> Tensor:
        check_target(labels, *logits.shape)
        with without_autocast(logits):
            logits = full_precision(logits)
            target = labels.to(logits.dtype) if labels.is_floating_point() else labels.long()
            if self.label_smoothing:
                t = as_probabilities(target, logits)
                target = (1 - self.label_smoothing) * t + self.label_smoothing / logits.shape[1]
            return self.losses(logits, target)


def as_probabilities(target: Tensor, logits: Tensor) -> Tensor:
    """A target as class probabilities (batch, classes): class indices become one-hot rows."""
    if target.is_floating_point():
        return target
    return torch.zeros_like(logits).scatter(1, target[:, None], 1.0)


def check_logits(logits: Tensor, num_classes: int | None) -> None:
    if not logits.is_floating_point():
        raise TypeError(f"logits are {logits.dtype}; expected a floating-point tensor")
    if logits.dim() != 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; expected (batch, classes)")
    if num_classes is not None and logits.shape[1] != num_classes:
        raise ValueError(
            f"logits have {logits.shape[1]} classes, but class_counts have {num_classes}; "
            "give one count per class"
        )
    if values_are_readable(logits) and logits.isnan().any():
        row = int(logits.isnan().any(dim=1).nonzero()[0])
        raise ValueError(
            f"logits contain NaN, first in row {row}; expected numbers. "
            "Check the inputs for NaN or lower the learning rate"
        )

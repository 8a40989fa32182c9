"""Losses: `loss(logits, labels)`."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from wcdas.checks import create
from wcdas.losses.affinity import AffinityLoss
from wcdas.losses.base import ClassificationLoss, Loss
from wcdas.losses.center import CenterLoss
from wcdas.losses.class_balanced import ClassBalancedLoss, class_balanced_weights
from wcdas.losses.cross_entropy import CrossEntropyLoss
from wcdas.losses.equalization import EqualizationLoss
from wcdas.losses.equilibrium import EquilibriumLoss
from wcdas.losses.focal import FocalLoss
from wcdas.losses.ldam import LDAMLoss
from wcdas.losses.logit_adjustment import BalancedSoftmaxLoss, LogitAdjustmentLoss
from wcdas.losses.supervised_contrastive import SupervisedContrastiveLoss

__all__ = [
    "LOSSES",
    "AffinityLoss",
    "BalancedSoftmaxLoss",
    "CenterLoss",
    "ClassBalancedLoss",
    "ClassificationLoss",
    "CrossEntropyLoss",
    "EqualizationLoss",
    "EquilibriumLoss",
    "FocalLoss",
    "LDAMLoss",
    "LogitAdjustmentLoss",
    "SupervisedContrastiveLoss",
    "class_balanced_weights",
    "create_loss",
    "list_losses",
]

LOSSES: dict[str, type[Loss]] = {
    "affinity": AffinityLoss,
    "balanced-softmax": BalancedSoftmaxLoss,
    "center": CenterLoss,
    "class-balanced": ClassBalancedLoss,
    "cross-entropy": CrossEntropyLoss,
    "equalization": EqualizationLoss,
    "equilibrium": EquilibriumLoss,
    "focal": FocalLoss,
    "ldam": LDAMLoss,
    "logit-adjustment": LogitAdjustmentLoss,
}


def create_loss(
    name: str, class_counts: Sequence[int] | Tensor | None = None, **options: Any
) -> Loss:
    """Build a loss by name; `class_counts` go to the losses that need them.

    >>> create_loss("ldam", class_counts=[160, 10], max_margin=0.4).margins.tolist()
    [0.2, 0.4]
    """
    context: dict[str, Any] = {"class_counts": class_counts}
    if class_counts is not None and "num_classes" not in options:
        context["num_classes"] = len(class_counts)
    return create("loss", LOSSES, name, options, **context)


def list_losses() -> list[str]:
    """The names that `create_loss` knows.

    >>> list_losses()[:2]
    ['affinity', 'balanced-softmax']
    """
    return list(LOSSES)

"""Softmax cross-entropy."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from wcdas.losses.base import ClassificationLoss


class CrossEntropyLoss(ClassificationLoss):
    """Softmax cross-entropy.

    L = −log p_y,  p = softmax(z)

    Label smoothing: C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens, Z. Wojna, 2016,
    arXiv:1512.00567.

    >>> import torch
    >>> loss = CrossEntropyLoss(label_smoothing=0.1)
    >>> round(loss(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])).item(), 4)
    0.3729
    """

    @classmethod
    def prior_strength(cls, **options: Any) -> float:
        return 0.0

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target, reduction="none")

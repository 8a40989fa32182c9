"""Balanced softmax."""

from collections.abc import Sequence

from torch import Tensor

from wcdas.losses.logit_adjustment import LogitAdjustmentLoss


class BalancedSoftmaxLoss(LogitAdjustmentLoss):
    """Cross-entropy of the balanced softmax: logit adjustment with τ = 1.

    L = −log(n_y e^(z_y) / Σ_j n_j e^(z_j))

    J. Ren, C. Yu, S. Sheng, X. Ma, H. Zhao, S. Yi, H. Li, 2020, arXiv:2007.10740.

    >>> import torch
    >>> loss = BalancedSoftmaxLoss(class_counts=[90, 10])
    >>> round(loss(torch.zeros(1, 2), torch.tensor([0])).item(), 4)
    0.1054
    """

    def __init__(
        self,
        class_counts: Sequence[int] | Tensor,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(class_counts, label_smoothing=label_smoothing, reduction=reduction)

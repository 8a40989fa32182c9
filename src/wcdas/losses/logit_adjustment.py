"""Logit-adjusted cross-entropy, and the balanced softmax, which is its case τ = 1."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from wcdas.checks import as_class_counts, check_from_zero
from wcdas.losses.base import ClassificationLoss


class LogitAdjustmentLoss(ClassificationLoss):
    """Cross-entropy of logits to which the log prior of the training classes is added.

    L = −log(π_y^τ e^(z_y) / Σ_j π_j^τ e^(z_j)),  π_j = n_j/N

    A. K. Menon, S. Jayasumana, A. S. Rawat, H. Jain, A. Veit, S. Kumar, 2020, arXiv:2007.07314.

    >>> import torch
    >>> loss = LogitAdjustmentLoss(class_counts=[90, 10])
    >>> round(loss(torch.zeros(1, 2), torch.tensor([1])).item(), 4)
    2.3026
    """

    log_prior: Tensor

    def __init__(
        self,
        class_counts: Sequence[int] | Tensor,
        tau: float = 1.0,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(label_smoothing, reduction)
        check_from_zero("tau", tau)
        n = as_class_counts(class_counts, needed_by="logit adjustment")
        self.num_classes = len(n)
        self.tau = tau
        self.register_buffer("log_prior", (n / n.sum()).log(), persistent=False)

    @classmethod
    def prior_strength(cls, **options: Any) -> float:
        return float(options.get("tau", 1.0))

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        adjusted = logits + self.tau * self.log_prior.to(logits.dtype)
        return F.cross_entropy(adjusted, target, reduction="none")


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

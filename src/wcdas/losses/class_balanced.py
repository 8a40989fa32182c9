"""Class-balanced loss."""

from collections.abc import Sequence

import torch
from torch import Tensor

from wcdas.checks import as_class_counts, check_from_zero
from wcdas.losses.focal import FocalLoss


def class_balanced_weights(class_counts: Sequence[int] | Tensor, beta: float) -> Tensor:
    """Inverse effective numbers w_j ∝ (1 − β)/(1 − β^n_j) in float64, summing to C.

    >>> class_balanced_weights([1, 2], beta=0.5)
    tensor([1.2000, 0.8000], dtype=torch.float64)
    """
    check_from_zero("beta", beta, below=1)
    n = as_class_counts(class_counts, needed_by="class_balanced_weights")
    log_beta = torch.tensor(beta, dtype=n.dtype, device=n.device).log()
    weights = -1 / torch.expm1(n * log_beta)
    return weights * (len(n) / weights.sum())


class ClassBalancedLoss(FocalLoss):
    """Cross-entropy, or focal loss for γ > 0, weighted by inverse effective numbers of samples.

    L = −w_y (1 − p_y)^γ log p_y,  w_j = (1 − β)/(1 − β^n_j), scaled to sum to C

    The mean is over the batch, not over the weights.

    Y. Cui, M. Jia, T.-Y. Lin, Y. Song, S. Belongie, 2019, arXiv:1901.05555.

    >>> import torch
    >>> loss = ClassBalancedLoss(class_counts=[1000, 10], beta=0.999)
    >>> round(loss(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).item(), 4)
    4.1879
    """

    class_weights: Tensor

    def __init__(
        self,
        class_counts: Sequence[int] | Tensor,
        beta: float = 0.9999,
        gamma: float = 0.0,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(gamma, label_smoothing=label_smoothing, reduction=reduction)
        counts = as_class_counts(class_counts, needed_by="class-balanced")
        self.num_classes = len(counts)
        self.register_buffer(
            "class_weights", class_balanced_weights(counts, beta), persistent=False
        )

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        w = self.class_weights.to(logits.dtype)
        if target.is_floating_point():
            return super().losses(logits, w * target)
        return w[target] * super().losses(logits, target)

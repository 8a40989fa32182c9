"""Softmax equalization loss."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from wcdas.checks import as_class_counts, check_probability
from wcdas.losses.base import ClassificationLoss, as_probabilities


class EqualizationLoss(ClassificationLoss):
    """Cross-entropy in which rare classes are at random spared the samples of other classes.

    L = −log(e^(z_y) / Σ_k w_k e^(z_k)),  w_k = 1 − β·T(f_k)·(1 − y_k),  β ~ Bernoulli(γ)

    T(f) = 1 for a class whose share f of the training images is below `threshold` λ, else 0; by
    default λ is half a fair share, 1/(2C), which is the 0.005 that is usual with the 100 classes of
    CIFAR-100-LT. β is drawn for every sample and class. In evaluation mode nothing is dropped and
    the loss is plain cross-entropy. A class that has any part of a soft target is kept, so label
    smoothing, which would keep them all, is not offered.

    J. Tan, C. Wang, B. Li, Q. Li, W. Ouyang, C. Yin, J. Yan, 2020, arXiv:2003.05176.

    >>> import torch
    >>> loss = EqualizationLoss(class_counts=[990, 9, 1], threshold=0.005, gamma=1.0)
    >>> logits, label = torch.zeros(1, 3), torch.tensor([0])
    >>> round(loss(logits, label).exp().item(), 4)
    2.0
    >>> round(loss.eval()(logits, label).exp().item(), 4)
    3.0
    """

    is_rare: Tensor

    def __init__(
        self,
        class_counts: Sequence[int] | Tensor,
        threshold: float | None = None,
        gamma: float = 0.9,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        n = as_class_counts(class_counts, needed_by="equalization")
        if threshold is None:
            threshold = 0.5 / len(n)
        check_probability("threshold", threshold)
        check_probability("gamma", gamma)
        self.num_classes = len(n)
        self.gamma = gamma
        self.register_buffer("is_rare", n / n.sum() < threshold, persistent=False)

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        if self.training:
            beta = torch.rand_like(logits) < self.gamma
            dropped = beta & self.is_rare & (as_probabilities(target, logits) == 0)
            # Not −∞, which a soft target of 0 would turn into NaN.
            logits = logits.masked_fill(dropped, torch.finfo(logits.dtype).min)
        return F.cross_entropy(logits, target, reduction="none")

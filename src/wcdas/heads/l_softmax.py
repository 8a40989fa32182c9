"""Large-margin softmax."""

import torch
from torch import Tensor

from wcdas.heads.multiplicative_margin import MultiplicativeMarginHead


class LSoftmaxHead(MultiplicativeMarginHead):
    """z_y = ‖x‖‖w_y‖ψ(θ_y), z_j = x·w_j otherwise; predicts with x·w.

    ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m]; the buffer `annealing` holds the λ of
    (λ cos θ + ψ(θ)) / (1 + λ), 0 unless a trainer sets it.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m, a whole number of at least 1; 4 is the paper's best on CIFAR.

    Liu et al., "Large-Margin Softmax Loss for Convolutional Neural Networks", 2016
    (arXiv:1612.02295).

    Example:
        >>> head = LSoftmaxHead(in_features=64, num_classes=100)
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        x_norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        w_norm = torch.linalg.vector_norm(self.weight.to(x.dtype), dim=1)
        return x_norm * w_norm * self.similarity(self.cosine(x), labels)

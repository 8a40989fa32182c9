"""SphereFace: the large-margin softmax with weights of unit length."""

import torch
from torch import Tensor

from wcdas.heads.multiplicative_margin import MultiplicativeMarginHead


class SphereFaceHead(MultiplicativeMarginHead):
    """z_y = ‖x‖ψ(θ_y), z_j = ‖x‖cos θ_j otherwise; predicts with ‖x‖cos θ.

    ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m]; the buffer `annealing` holds the λ of
    (λ cos θ + ψ(θ)) / (1 + λ), 0 unless a trainer sets it.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m, a whole number of at least 1; 4 in the paper.

    Liu et al., "SphereFace: Deep Hypersphere Embedding for Face Recognition", 2017
    (arXiv:1704.08063).

    Example:
        >>> head = SphereFaceHead(in_features=64, num_classes=100)
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        x_norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return x_norm * self.similarity(self.cosine(x), labels)

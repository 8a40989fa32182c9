"""Wrapped Cauchy distributed angular softmax (Han, ICML 2023)."""

import math

from torch import Tensor

from wcdas.heads.angular import ConcentrationHead, Shape, sigmoid
from wcdas.heads.functional import chunked, plain

CHUNKED_FROM = 2_000  # classes; below, autograd is as fast and has second derivatives


class WCDASHead(ConcentrationHead):
    """z_j = s·(1 − ρ_j²) / (2π(1 + ρ_j² − 2ρ_j cos θ_j)), with a ρ of every class.

    It starts where it learns, at whatever width and class count; `start="paper"` is the paper's own
    start.

    `loss` takes the target column apart, so that its gradient stays exact at small angles and for
    ρ near 1. From 2,000 classes on it has first derivatives only, and needs one matrix of
    batch × classes instead of eight.

    Han, "Wrapped Cauchy Distributed Angular Softmax for Long-Tailed Visual Recognition", 2023.

    Example:
        >>> head = WCDASHead(in_features=64, num_classes=100)
        >>> logits = head(torch.randn(8, 64))
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    @staticmethod
    def shape(w_rho: float) -> Shape:
        rho, q = sigmoid(w_rho), sigmoid(-w_rho)
        right = 1 + rho**2
        slope = rho * q * (1 + rho) / (math.pi * right**2)
        return Shape(slope, slope * right / q**2)

    @staticmethod
    def spread(w_rho: float) -> float:
        """By Parseval: ∂f/∂ρ = Σ n ρⁿ⁻¹ cos nθ / π."""
        rho, q = sigmoid(w_rho), sigmoid(-w_rho)
        mean_square = (1 + rho**2) / (2 * (q * (1 + rho)) ** 3)
        return rho * q * math.sqrt(mean_square) / math.pi

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        return plain.density((1 - cosine).clamp_min(0), self._class_w_rho().to(cosine.dtype))

    def losses(
        self, x: Tensor, labels: Tensor, label_smoothing: float, log_prior: Tensor | None
    ) -> Tensor:
        kernel = plain if self.num_classes < CHUNKED_FROM else chunked
        weight, w_rho = self.weight.to(x.dtype), self._class_w_rho().to(x.dtype)
        scale = self.scale.to(x.dtype)
        return kernel.wcdas_losses(x, weight, w_rho, scale, labels, label_smoothing, log_prior)

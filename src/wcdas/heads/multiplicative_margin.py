"""Margins that multiply the angle, as in L-Softmax and SphereFace."""

import math

import torch
from torch import Tensor

from wcdas.heads.margin import AnnealedMarginHead


class MultiplicativeMarginHead(AnnealedMarginHead):
    """ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m], in place of the target's cos θ.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m, a whole number of at least 1; 1 is no margin, 4 the papers' largest.
    """

    def __init__(self, in_features: int, num_classes: int, margin: int = 4) -> None:
        super().__init__(in_features, num_classes)
        if isinstance(margin, bool) or not isinstance(margin, int) or margin < 1:
            raise ValueError(f"margin is {margin!r}; expected a whole number of at least 1")
        self.margin = margin

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, margin={self.margin}"

    def target(self, cosine: Tensor) -> Tensor:
        knots = [math.cos(i * math.pi / self.margin) for i in range(1, self.margin)]
        k = sum((cosine.detach() <= knot).to(cosine.dtype) for knot in knots)
        sign = 1 - 2 * (k % 2)
        return sign * _cosine_of_multiple(cosine, self.margin) - 2 * k


def _cosine_of_multiple(cosine: Tensor, m: int) -> Tensor:
    """cos mθ as the Chebyshev polynomial T_m(cos θ)."""
    previous, current = torch.ones_like(cosine), cosine
    for _ in range(m - 1):
        previous, current = current, 2 * cosine * current - previous
    return current

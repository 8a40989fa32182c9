"""Wrapped Normal distributed angular softmax, the paper's rival to its wrapped Cauchy."""

import math

import torch
from torch import Tensor

from wcdas.circular import concentration_from_variance
from wcdas.heads.concentration import ConcentrationHead


class WNDASHead(ConcentrationHead):
    """z_j = s·exp(κ_j cos θ_j) / (2π I₀(κ_j)), with κ so that I₁(κ)/I₀(κ) = ρ = σ(w_ρ).

    The von Mises density stands for the wrapped Normal, as in the paper, which leaves the link
    between w_ρ and κ open; here both densities have the first cosine moment ρ.

    Han, "Wrapped Cauchy Distributed Angular Softmax for Long-Tailed Visual Recognition", 2023.

    Example:
        >>> logits = WNDASHead(in_features=64, num_classes=100)(torch.randn(8, 64))
    """

    @property
    def kappa(self) -> Tensor:
        """The von Mises concentration of every class, in float64."""
        return concentration_from_variance((-self._class_w_rho().double()).sigmoid())

    def log_normaliser(self, kappa: Tensor) -> Tensor:
        """log 2πI₀(κ) − κ."""
        return (2 * math.pi * torch.special.i0e(kappa)).log()

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        u, kappa = (1 - cosine).clamp_min(0), self.kappa
        return (-kappa.to(u.dtype) * u - self.log_normaliser(kappa).to(u.dtype)).exp()

"""Wrapped Normal distributed angular softmax, the paper's rival to its wrapped Cauchy."""

import math

import torch
from torch import Tensor

from wcdas.circular import concentration_from_variance
from wcdas.heads.angular import ConcentrationHead, Shape, sigmoid


class WNDASHead(ConcentrationHead):
    """z_j = s·exp(κ_j cos θ_j) / (2π I₀(κ_j)), with κ so that I₁(κ)/I₀(κ) = ρ.

    The von Mises density stands for the wrapped Normal, as in the paper, which leaves the link
    between w_ρ and κ open; here both densities have the first cosine moment ρ.

    Han, "Wrapped Cauchy Distributed Angular Softmax for Long-Tailed Visual Recognition", 2023.

    Example:
        >>> logits = WNDASHead(in_features=64, num_classes=100)(torch.randn(8, 64))
    """

    @staticmethod
    def shape(w_rho: float) -> Shape:
        kappa, peak = _kappa_and_peak(w_rho)
        right = math.exp(-kappa) * peak
        return Shape(kappa * right, peak - right)

    @staticmethod
    def spread(w_rho: float) -> float:
        """∂f/∂w_ρ = f·(cos θ − ρ)·ρ(1 − ρ)·dκ/dρ; its mean square is one of Bessel functions."""
        kappa, peak = _kappa_and_peak(w_rho)
        rho, q = sigmoid(w_rho), sigmoid(-w_rho)
        twice = torch.tensor(2 * kappa, dtype=torch.float64, device="cpu")
        i0, i1 = float(torch.special.i0e(twice)), float(torch.special.i1e(twice))
        mean_square = i0 * (1 + rho**2) - i1 * (1 / (2 * kappa) + 2 * rho)
        return peak * math.sqrt(mean_square) * rho * q / (q * (1 + rho) - rho / kappa)

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


def _kappa_and_peak(w_rho: float) -> tuple[float, float]:
    """κ, and the density at θ = 0."""
    variance = torch.tensor(sigmoid(-w_rho), dtype=torch.float64, device="cpu")
    kappa = concentration_from_variance(variance)
    return float(kappa), 1 / (2 * math.pi * float(torch.special.i0e(kappa)))

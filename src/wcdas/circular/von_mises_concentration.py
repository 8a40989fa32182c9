"""The von Mises concentration κ of a given circular variance q = 1 − I₁(κ)/I₀(κ)."""

from typing import Any

import torch
from torch import Tensor
from torch.special import i0e, i1e

# q = Σ_k c_k/κ^k for large κ; beyond κ = 500 what is left out is below 1e-15 of q.
_COEFFICIENTS = (1 / 2, 1 / 8, 1 / 8, 25 / 128, 13 / 32, 1073 / 1024)
_LARGE = 500.0
_NEWTON_STEPS = 8


def circular_variance(concentration: Tensor) -> Tensor:
    """q = 1 − A(κ), A = I₁/I₀, in float64 and without cancellation for large κ."""
    kappa = concentration.double()
    y = 1 / kappa.clamp(min=_LARGE)
    asymptotic = sum((c * y**k for k, c in enumerate(_COEFFICIENTS, 1)), torch.zeros_like(y))
    return torch.where(kappa > _LARGE, asymptotic, 1 - i1e(kappa) / i0e(kappa))


def concentration_from_variance(variance: Tensor) -> Tensor:
    """κ with 1 − I₁(κ)/I₀(κ) = q, for a circular variance q in (0, 1].

        dκ/dq = −1 / A'(κ),   A'(κ) = q(2 − q) − (1 − q)/κ

    Solved in float64 by Newton's method. Near q = 1 the mean resultant length 1 − q, and with it
    the small κ ≈ 2(1 − q), is as precise as q itself: give q in float64 there.

        >>> concentration_from_variance(torch.tensor([1.0, 0.5, 0.001]))
        tensor([  0.0000,   1.1593, 500.2504])
    """
    concentration: Tensor = _ConcentrationFromVariance.apply(variance.double())
    return concentration.to(variance.dtype)


class _ConcentrationFromVariance(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(variance: Tensor) -> Tensor:
        q = variance
        rho = 1 - q
        kappa = rho * (2 - rho.square()) / (q * (2 - q))
        for _ in range(_NEWTON_STEPS):
            # The same residual twice: 1 − q is exact where q is near 1, q where it is small.
            small = rho - i1e(kappa) / i0e(kappa)
            residual = torch.where(kappa > _LARGE, circular_variance(kappa) - q, small)
            kappa = kappa + residual / _slope(kappa)
        return kappa

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (kappa,) = ctx.saved_tensors
        return -grad / _slope(kappa)


def _slope(kappa: Tensor) -> Tensor:
    """A'(κ) = −dq/dκ."""
    q = circular_variance(kappa)
    positive = torch.where(kappa > 0, kappa, 1.0)
    ratio = torch.where(kappa > 0, (1 - q) / positive, 0.5)
    y = 1 / kappa.clamp(min=_LARGE)
    asymptotic = sum(
        (k * c * y ** (k + 1) for k, c in enumerate(_COEFFICIENTS, 1)), torch.zeros_like(y)
    )
    return torch.where(kappa > _LARGE, asymptotic, q * (2 - q) - ratio)

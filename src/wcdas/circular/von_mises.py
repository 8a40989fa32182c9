"""The von Mises distribution, the usual stand-in for the wrapped Normal, and its concentration."""

import math
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import VonMises as TorchVonMises
from torch.distributions import constraints
from torch.special import i0e, i1e
from torch.types import _size

from wcdas.circular.angles import MAX_TERMS, one_minus_cos, sine_sum, wrap
from wcdas.circular.distribution import CircularDistribution

# q = Σ_k c_k/κ^k for large κ; beyond κ = 500 what is left out is below 1e-15 of q.
_COEFFICIENTS = (1 / 2, 1 / 8, 1 / 8, 25 / 128, 13 / 32, 1073 / 1024)
_LARGE = 500.0
_NEWTON_STEPS = 8


class VonMises(CircularDistribution):
    """The von Mises distribution.

        f(κ, θ) = exp(κ cos(θ − μ)) / (2π I₀(κ))

        >>> VonMises(2.0).prob(torch.tensor(0.0))
        tensor(0.5159)

    `fit` is the maximum-likelihood estimate, for which I₁(κ)/I₀(κ) is the resultant length.

    Args:
        concentration: κ ≥ 0.
        loc: μ in radians.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "concentration": constraints.nonnegative,
        "loc": constraints.real,
    }

    @classmethod
    def _from_variance(cls, variance: Tensor, loc: float | Tensor = 0.0) -> Self:
        return cls(concentration_from_variance(variance), loc)

    @property
    def variance(self) -> Tensor:
        """The circular variance 1 − I₁(κ)/I₀(κ)."""
        return circular_variance(self.concentration).to(self.concentration.dtype)

    def _log_prob(self, angle: Tensor) -> Tensor:
        kappa = self.concentration
        # torch gives i0e the slope 0 at exactly 0, where from the right it is −1.
        scaled_bessel = i0e(kappa + torch.finfo(kappa.dtype).tiny)
        return -kappa * one_minus_cos(angle) - torch.log(2 * math.pi * scaled_bessel)

    def _mass(self, angle: Tensor) -> Tensor:
        return (angle + 2 * sine_sum(self._moment, angle, self._reach())) / (2 * math.pi)

    def _moment(self, order: Tensor) -> Tensor:
        """I_n/I₀ = r₁ r₂ … r_n with r_n = I_n/I_{n−1} = κ / (2n + κ r_{n+1}), from the top down."""
        kappa = self.concentration
        highest = int(order.max())
        top = highest + self._reach()
        # Amos's bound on the ratio above the top, whose small error shrinks at every step.
        ratio = kappa / (top + 0.5 + torch.sqrt(kappa.square() + (top + 1.5) ** 2))
        ratios = []
        for n in range(top, 0, -1):
            ratio = kappa / (2 * n + kappa * ratio)
            if n <= highest:
                ratios.append(ratio)
        ratios.append(torch.ones_like(kappa))
        moments = torch.stack(ratios[::-1], dim=-1).cumprod(-1)
        return moments[..., order]

    def _reach(self) -> int:
        """The number of orders over which the moments fall below 1e-17."""
        largest = float(self.concentration.detach().max())
        reach = 9 * math.sqrt(largest) + 16
        if reach > MAX_TERMS:
            raise ValueError(
                f"concentration {largest:g} needs {reach:.2g} moments; expected at most "
                f"{MAX_TERMS}. Lower the concentration or use WrappedNormal"
            )
        return math.ceil(reach)

    def sample(self, sample_shape: _size = ()) -> Tensor:
        positive = self.concentration.double().clamp(min=1e-30)
        angle = TorchVonMises(torch.zeros_like(positive), positive).sample(torch.Size(sample_shape))
        return wrap(self.loc.detach() + angle.to(self.loc.dtype))


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

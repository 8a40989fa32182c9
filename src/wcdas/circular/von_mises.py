"""The von Mises distribution, the usual stand-in for the wrapped Normal."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import VonMises as TorchVonMises
from torch.distributions import constraints
from torch.special import i0e
from torch.types import _size

from wcdas.circular.angles import one_minus_cos, wrap
from wcdas.circular.distribution import CircularDistribution
from wcdas.circular.series import MAX_TERMS, sine_sum
from wcdas.circular.von_mises_concentration import circular_variance, concentration_from_variance


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

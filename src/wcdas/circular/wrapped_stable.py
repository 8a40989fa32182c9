"""The symmetric wrapped stable family, of which wrapped Cauchy and wrapped Normal are members."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all
from torch.types import _size

from wcdas.circular.angles import mean_and_variance, wrap
from wcdas.circular.distribution import CircularDistribution, append_dims
from wcdas.circular.series import MAX_TERMS, cosine_sum, sine_sum


class SymmetricWrappedStable(CircularDistribution):
    """The symmetric wrapped stable distribution (the paper's h).

        h(ρ, θ) = (1/2π) (1 + 2 Σ_n ρ^{n^a} cos n(θ − μ))

    `WrappedCauchy` is a = 1 and `WrappedNormal` a = 2, both in closed form. Here the series is
    summed until its tail is below the resolution of the dtype, so the density's error is small
    against its peak, not against its tail.

        >>> SymmetricWrappedStable(0.5, exponent=1.5).prob(torch.tensor(0.0))
        tensor(0.3732)

    Args:
        concentration: ρ in [0, 1).
        exponent: a in [½, 2].
        loc: μ in radians.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "concentration": constraints.half_open_interval(0.0, 1.0),
        "exponent": constraints.interval(0.5, 2.0),
        "loc": constraints.real,
    }
    has_rsample = True
    exponent: Tensor

    def __init__(
        self,
        concentration: float | Tensor,
        exponent: float | Tensor,
        loc: float | Tensor = 0.0,
        validate_args: bool | None = None,
    ) -> None:
        concentration, self.exponent, loc = broadcast_all(concentration, exponent, loc)
        if validate_args is not False:
            _check_exponent(self.exponent)
        super().__init__(concentration, loc, validate_args)

    def _moment(self, order: Tensor) -> Tensor:
        rho, a = append_dims(self.concentration, order), append_dims(self.exponent, order)
        return rho ** (order.to(rho.dtype) ** a)

    def _log_prob(self, angle: Tensor) -> Tensor:
        density = (1 + 2 * cosine_sum(self._moment, angle, self._terms())) / (2 * math.pi)
        # Rounding can push a density near 0 below it.
        return density.clamp(min=torch.finfo(density.dtype).tiny).log()

    def _mass(self, angle: Tensor) -> Tensor:
        return (angle + 2 * sine_sum(self._moment, angle, self._terms())) / (2 * math.pi)

    def _terms(self) -> int:
        """The number of terms after which Σ ρ^{n^a} adds less than the dtype resolves."""
        decay = -self.concentration.detach().double().log()
        power = 1 / self.exponent.detach().double()
        depth = -math.log(torch.finfo(self.concentration.dtype).eps)
        terms = (depth / decay) ** power
        # The tail is at most as large as its first term times the number of terms before it.
        terms = ((depth + terms.log1p()) / decay) ** power
        if terms.max() > MAX_TERMS:
            worst = int(terms.argmax())
            rho, a = self.concentration.flatten()[worst], self.exponent.flatten()[worst]
            raise ValueError(
                f"concentration {rho:g} with exponent {a:g} needs {terms.max():.2g} terms of the "
                f"series; expected at most {MAX_TERMS}. Lower the concentration, raise the "
                "exponent, or use WrappedCauchy or WrappedNormal"
            )
        return math.ceil(terms.max())

    def rsample(self, sample_shape: _size = ()) -> Tensor:
        """Wrapped draws of the stable law, by the method of Chambers, Mallows and Stuck."""
        shape = self._extended_shape(torch.Size(sample_shape))
        # float64 keeps cos v above 0 and the far tail, which wraps round often, finely resolved.
        rho, a = self.concentration.double(), self.exponent.double()
        v = math.pi * (torch.rand(shape, dtype=rho.dtype, device=rho.device) - 0.5)
        w = torch.empty_like(v).exponential_()
        draw = torch.sin(a * v) / v.cos() ** (1 / a) * (torch.cos((1 - a) * v) / w) ** (1 / a - 1)
        scale = (-rho.clamp(min=torch.finfo(rho.dtype).tiny).log()) ** (1 / a)
        return wrap(self.loc + wrap(scale * draw).to(self.loc.dtype))

    @classmethod
    def fit(cls, samples: Tensor) -> Self:
        """The member with the samples' mean direction and first two central moments."""
        loc, variance = mean_and_variance(samples)
        second = torch.cos(2 * (samples - loc[..., None])).mean(-1)
        return cls._from_two_moments(1 - variance, second, loc)

    @classmethod
    def fit_moments(cls, moments: Tensor) -> Self:
        """The member with loc 0 and the first two of the cosine moments α₁ … α_N."""
        return cls._from_two_moments(moments[..., 0], moments[..., 1])

    @classmethod
    def _from_two_moments(cls, first: Tensor, second: Tensor, loc: float | Tensor = 0.0) -> Self:
        # α₁ = ρ and α₂ = ρ^{2^a}, so 2^a = log α₂ / log α₁.
        tiny = torch.finfo(first.dtype).tiny
        ratio = second.clamp(min=tiny).log() / first.clamp(min=tiny).log()
        return cls(first, ratio.log2().clamp(0.5, 2.0), loc)


def _check_exponent(exponent: Tensor) -> None:
    wrong = exponent[~((exponent >= 0.5) & (exponent <= 2))]
    if len(wrong):
        raise ValueError(
            f"exponent is {wrong[0]:g}; expected 0.5 to 2. Raise a smaller one, whose series "
            "converges too slowly to sum; no stable law has a larger one"
        )

"""The symmetric wrapped stable family of the paper, and its two members in closed form."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all
from torch.types import _size

from wcdas.circular.angles import (
    MAX_TERMS,
    cosine_sum,
    mean_and_variance,
    one_minus_cos,
    sine_sum,
    wrap,
)
from wcdas.circular.distribution import CircularDistribution, append_dims

# Of the maximum-likelihood fit of a wrapped Cauchy distribution.
_MAX_STEPS = 1000
_TOLERANCE = 1e-14
# Of the wrapped Normal: on their sides of σ² = 2π, what either form leaves out is below 1e-21.
_IMAGES = 4
_TERMS = 3


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
        inside = (self.exponent >= 0.5) & (self.exponent <= 2)
        if validate_args is not False and not inside.all():
            raise ValueError(
                f"exponent is {self.exponent[~inside][0]:g}; expected 0.5 to 2. Raise a smaller "
                "one, whose series converges too slowly to sum; no stable law has a larger one"
            )
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


class WrappedCauchy(CircularDistribution):
    """The wrapped Cauchy distribution: `SymmetricWrappedStable` with exponent 1.

        f(ρ, θ) = (1 − ρ²) / (2π (1 + ρ² − 2ρ cos(θ − μ)))

        >>> WrappedCauchy(0.5).prob(torch.tensor(0.0))
        tensor(0.4775)

    Args:
        concentration: ρ in [0, 1), the mean resultant length.
        loc: μ in radians.
    """

    has_rsample = True

    def _moment(self, order: Tensor) -> Tensor:
        return append_dims(self.concentration, order) ** order

    def _log_prob(self, angle: Tensor) -> Tensor:
        rho = self.concentration
        log_numerator = torch.log1p(-rho) + torch.log1p(rho)
        # 1 + ρ² − 2ρ cos θ, without cancellation
        denominator = (1 - rho).square() + 2 * rho * one_minus_cos(angle)
        return log_numerator - math.log(2 * math.pi) - denominator.log()

    def _mass(self, angle: Tensor) -> Tensor:
        # tan(π·mass) = (1 + ρ)/(1 − ρ) · tan(θ/2)
        rho, half = self.concentration, angle / 2
        return torch.atan2((1 + rho) * torch.sin(half), (1 - rho) * torch.cos(half)) / math.pi

    def rsample(self, sample_shape: _size = ()) -> Tensor:
        """Draws by the inverse of the distribution function."""
        rho = self.concentration
        shape = self._extended_shape(torch.Size(sample_shape))
        turn = math.pi * (torch.rand(shape, dtype=rho.dtype, device=rho.device) - 0.5)
        angle = 2 * torch.atan2((1 - rho) * torch.sin(turn), (1 + rho) * torch.cos(turn))
        return wrap(self.loc + angle)

    @classmethod
    def fit(cls, samples: Tensor) -> Self:
        """The maximum-likelihood member: the likelihood equation of Kent and Tyler (1988).

            mean of (z − ψ)/(1 − ψ̄z) = 0,   z = exp(iθ),   ψ = ρ exp(iμ),   along the last dimension

        The map carries ψ to 0 and one wrapped Cauchy law to another, whose ψ is its mean; so each
        step carries the mean of the mapped samples back.
        """
        angles = samples.detach().double()
        z = torch.complex(torch.cos(angles), torch.sin(angles))
        psi = z.mean(-1, keepdim=True)
        for _ in range(_MAX_STEPS):
            mean = ((z - psi) / (1 - psi.conj() * z)).mean(-1, keepdim=True)
            previous, psi = psi, (psi + mean) / (1 + psi.conj() * mean)
            if not ((psi - previous).abs() > _TOLERANCE).any():
                break
        rho, loc = psi.squeeze(-1).abs(), psi.squeeze(-1).angle()
        dtype = samples.dtype if samples.is_floating_point() else torch.get_default_dtype()
        return cls(rho.to(dtype), loc.to(dtype))


class WrappedNormal(CircularDistribution):
    """The wrapped Normal distribution: `SymmetricWrappedStable` with exponent 2.

        h(ρ, θ) = (1/2π) (1 + 2 Σ_n ρ^{n²} cos n(θ − μ)) = Σ_k N(θ − μ + 2πk; 0, σ²),  σ² = −2 ln ρ

    The first form is used for σ² > 2π, the second, exact far into the tail, for σ² ≤ 2π.

        >>> WrappedNormal(0.99).log_prob(torch.tensor(3.0))
        tensor(-222.8388)

    Args:
        concentration: ρ in [0, 1), the mean resultant length.
        loc: μ in radians.
    """

    has_rsample = True

    def _moment(self, order: Tensor) -> Tensor:
        return append_dims(self.concentration, order) ** order.square()

    def _log_prob(self, angle: Tensor) -> Tensor:
        sigma_squared = self._sigma_squared()[..., None]
        log_normals = -_images(angle).square() / (2 * sigma_squared)
        log_normals = log_normals - torch.log(2 * math.pi * sigma_squared) / 2
        series = torch.log1p(2 * cosine_sum(self._wide_moment, angle, _TERMS))
        wide = series - math.log(2 * math.pi)
        return torch.where(self._is_narrow(), log_normals.logsumexp(-1), wide)

    def _mass(self, angle: Tensor) -> Tensor:
        scale = torch.sqrt(2 * self._sigma_squared())[..., None]
        upper = torch.erf(_images(angle) / scale)
        lower = torch.erf(_images(torch.zeros_like(angle)) / scale)
        wide = (angle + 2 * sine_sum(self._wide_moment, angle, _TERMS)) / (2 * math.pi)
        return torch.where(self._is_narrow(), (upper - lower).sum(-1) / 2, wide)

    def _is_narrow(self) -> Tensor:
        return self.concentration >= math.exp(-math.pi)

    # Either form sees a harmless concentration where the other is used: its gradient stays finite.
    def _sigma_squared(self) -> Tensor:
        return -2 * torch.where(self._is_narrow(), self.concentration, 0.5).log()

    def _wide_moment(self, order: Tensor) -> Tensor:
        rho = self.concentration.masked_fill(self._is_narrow(), 0.0)
        return append_dims(rho, order) ** order.square()

    def rsample(self, sample_shape: _size = ()) -> Tensor:
        """Wrapped draws of the Normal distribution."""
        rho = self.concentration
        sigma = torch.sqrt(-2 * rho.clamp(min=torch.finfo(rho.dtype).tiny).log())
        shape = self._extended_shape(torch.Size(sample_shape))
        return wrap(self.loc + sigma * torch.randn(shape, dtype=rho.dtype, device=rho.device))


def _images(angle: Tensor) -> Tensor:
    """θ + 2πk in a new last dimension."""
    k = torch.arange(-_IMAGES, _IMAGES + 1, dtype=angle.dtype, device=angle.device)
    return angle[..., None] + 2 * math.pi * k

"""The wrapped Cauchy distribution, the density of the paper's classifier."""

import math
from typing import Self

import torch
from torch import Tensor
from torch.types import _size

from wcdas.circular.angles import one_minus_cos, wrap
from wcdas.circular.distribution import CircularDistribution, append_dims

_MAX_STEPS = 1000
_TOLERANCE = 1e-14


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
        return log_numerator - math.log(2 * math.pi) - _denominator(rho, angle).log()

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


def _denominator(rho: Tensor, angle: Tensor) -> Tensor:
    """1 + ρ² − 2ρ cos θ, without cancellation."""
    return (1 - rho).square() + 2 * rho * one_minus_cos(angle)

"""The wrapped Normal distribution, the kernel of a single image in the paper."""

import math

import torch
from torch import Tensor
from torch.types import _size

from wcdas.circular.angles import wrap
from wcdas.circular.distribution import CircularDistribution, append_dims
from wcdas.circular.series import cosine_sum, sine_sum

# On their sides of σ² = 2π, what either form leaves out is below 1e-21.
_IMAGES = 4
_TERMS = 3


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

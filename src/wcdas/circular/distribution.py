"""The base of the symmetric unimodal distributions on the circle."""

import math
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import broadcast_all

from wcdas.circular.angles import mean_and_variance, wrap
from wcdas.circular.least_squares import least_square_variance


class CircularDistribution(Distribution):
    """A symmetric unimodal distribution on the circle, in the manner of `torch.distributions`.

    The density is 2π-periodic, so every real angle is in its support; samples are in [−π, π).
    A family defines `_log_prob`, `_mass` and `_moment` around the centre, and how it is sampled.

    Args:
        concentration: 0 is the uniform distribution.
        loc: the mean direction in radians.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "concentration": constraints.half_open_interval(0.0, 1.0),
        "loc": constraints.real,
    }
    support = constraints.real
    concentration: Tensor
    loc: Tensor

    def __init__(
        self,
        concentration: float | Tensor,
        loc: float | Tensor = 0.0,
        validate_args: bool | None = None,
    ) -> None:
        self.concentration, self.loc = broadcast_all(concentration, loc)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _log_prob(self, angle: Tensor) -> Tensor:
        """The log density at `angle` in [−π, π) from the centre."""
        raise NotImplementedError

    def _mass(self, angle: Tensor) -> Tensor:
        """The probability between the centre and `angle` in [−π, π), with the sign of `angle`."""
        raise NotImplementedError

    def _moment(self, order: Tensor) -> Tensor:
        """E cos nθ around the centre for orders n ≥ 0, of shape batch_shape + order.shape."""
        raise NotImplementedError

    @classmethod
    def _from_variance(cls, variance: Tensor, loc: float | Tensor = 0.0) -> Self:
        return cls(1 - variance, loc)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._log_prob(wrap(value - self.loc))

    def prob(self, value: Tensor) -> Tensor:
        """The density."""
        return self.log_prob(value).exp()

    def cdf(self, value: Tensor) -> Tensor:
        """P(−π ≤ Θ ≤ value) for Θ in [−π, π]."""
        if self._validate_args:
            self._validate_sample(value)
        upper = self._unwrapped_mass(value.clamp(-math.pi, math.pi) - self.loc)
        lower = self._unwrapped_mass(-math.pi - self.loc)
        return (upper - lower).clamp(0, 1)

    def _unwrapped_mass(self, angle: Tensor) -> Tensor:
        wrapped = wrap(angle)
        turns = torch.round((angle - wrapped).detach() / (2 * math.pi))
        return turns + self._mass(wrapped)

    def central_moment(self, n: int | Tensor) -> Tensor:
        """E cos n(θ − loc): batch_shape for an int, batch_shape + n.shape for a tensor of ints."""
        return self._moment(torch.as_tensor(n, device=self.loc.device).abs())

    def cosine_moment(self, n: int | Tensor) -> Tensor:
        """α_n = E cos nθ, in the shape of `central_moment`."""
        return self.central_moment(n) * torch.cos(self._phase(n))

    def sine_moment(self, n: int | Tensor) -> Tensor:
        """β_n = E sin nθ, in the shape of `central_moment`."""
        return self.central_moment(n) * torch.sin(self._phase(n))

    def _phase(self, n: int | Tensor) -> Tensor:
        order = torch.as_tensor(n, device=self.loc.device)
        return append_dims(self.loc, order) * order

    @property
    def mean(self) -> Tensor:
        """The mean direction."""
        return self.loc

    @property
    def mean_resultant_length(self) -> Tensor:
        """α₁ around the centre: 0 for the uniform distribution, towards 1 for a point."""
        return self.central_moment(1)

    @property
    def variance(self) -> Tensor:
        """The circular variance 1 − α₁."""
        return 1 - self.mean_resultant_length

    @property
    def stddev(self) -> Tensor:
        """The circular standard deviation √(−2 ln α₁)."""
        return (-2 * self.mean_resultant_length.log()).sqrt()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        new: Self = self._get_checked_instance(type(self), _instance)
        for name in self.arg_constraints:
            setattr(new, name, getattr(self, name).expand(batch_shape))
        super(CircularDistribution, new).__init__(torch.Size(batch_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new

    @classmethod
    def fit(cls, samples: Tensor) -> Self:
        """The member with the samples' mean direction and resultant length (last dimension)."""
        loc, variance = mean_and_variance(samples)
        return cls._from_variance(variance, loc)

    @classmethod
    def fit_moments(cls, moments: Tensor) -> Self:
        """The member with loc 0 and the smallest least-square error Δ to α₁ … α_N (last dimension).

        The mean resultant length is sought in [0, 1 − 2⁻²⁰].
        """
        variance = least_square_variance(lambda q, n: cls._from_variance(q)._moment(n), moments)
        return cls._from_variance(variance.to(moments.dtype))


def append_dims(parameter: Tensor, order: Tensor) -> Tensor:
    """The parameter with a dimension of size 1 for every dimension of `order`."""
    return parameter[(..., *[None] * order.dim())]

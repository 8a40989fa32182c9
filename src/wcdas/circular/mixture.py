"""Mixtures of circular distributions, such as the paper's class of images."""

import torch
from torch import Tensor
from torch.distributions import MixtureSameFamily

from wcdas.circular.distribution import CircularDistribution, append_dims


class Mixture(MixtureSameFamily):
    """A mixture of the last batch dimension of a circular distribution (the paper's f_mixed).

    α_mixed,n = Σ_m π_m α_m,n      (Corollary 1.1; the sine moments likewise)

    >>> from torch.distributions import Categorical
    >>> from wcdas.circular import WrappedNormal
    >>> kernels = WrappedNormal(torch.tensor([0.2, 0.6]))
    >>> Mixture(Categorical(torch.ones(2)), kernels).cosine_moment(1)
    tensor(0.4000)
    """

    _component_distribution: CircularDistribution

    def prob(self, value: Tensor) -> Tensor:
        """The density."""
        return self.log_prob(value).exp()

    def cosine_moment(self, n: int | Tensor) -> Tensor:
        """α_n = E cos nθ: batch_shape for an int, batch_shape + n.shape for a tensor of ints."""
        return self._weighted_mean(self._component_distribution.cosine_moment(n), n)

    def sine_moment(self, n: int | Tensor) -> Tensor:
        """β_n = E sin nθ, in the shape of `cosine_moment`."""
        return self._weighted_mean(self._component_distribution.sine_moment(n), n)

    def _weighted_mean(self, moments: Tensor, n: int | Tensor) -> Tensor:
        order = torch.as_tensor(n)
        weights = append_dims(self.mixture_distribution.probs, order)
        return (weights * moments).sum(-1 - order.dim())

    @property
    def mean(self) -> Tensor:
        """The mean direction."""
        return torch.atan2(self.sine_moment(1), self.cosine_moment(1))

    @property
    def mean_resultant_length(self) -> Tensor:
        """|E exp(iθ)|: 0 for the uniform distribution, towards 1 for a point."""
        return torch.hypot(self.cosine_moment(1), self.sine_moment(1))

    @property
    def variance(self) -> Tensor:
        """The circular variance 1 − √(α₁² + β₁²)."""
        return 1 - self.mean_resultant_length

"""The circle as equally spaced angles, and the two families of densities that the paper fits."""

import math

import torch
from torch import Tensor
from torch.distributions import Categorical

from wcdas.circular import CircularDistribution, Mixture, WrappedCauchy, WrappedNormal

Family = type[CircularDistribution]
CAUCHY_AND_NORMAL: tuple[Family, Family] = (WrappedCauchy, WrappedNormal)


def spelled(family: Family) -> str:
    return {WrappedCauchy: "wrapped Cauchy", WrappedNormal: "wrapped Normal"}[family]


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def orders(count: int) -> Tensor:
    """Return n = 1 … count."""
    return torch.arange(1, count + 1, dtype=torch.float64)


def angles(count: int = 4096) -> Tensor:
    return torch.arange(count, dtype=torch.float64) * (2 * math.pi / count) - math.pi


def integral(values: Tensor) -> Tensor:
    """∫ over the circle of a function given at `angles` (last dimension), where the sum over
    equally spaced angles is exact for smooth functions."""
    return values.mean(-1) * 2 * math.pi


def mixed(kernels: WrappedNormal) -> Mixture:
    """Return the mean of a class's kernels."""
    return Mixture(Categorical(torch.ones_like(kernels.mean_resultant_length)), kernels)

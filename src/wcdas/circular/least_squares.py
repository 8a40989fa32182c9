"""The paper's least-square error Δ between two distributions, and the fit that minimises it."""

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

# 1 − α₁ = exp(−t): the search runs over t in [0, 20 ln 2], that is α₁ from 0 to 1 − 2⁻²⁰.
_LONGEST = 20 * math.log(2)
_GRID_POINTS = 256
_GOLDEN = (math.sqrt(5) - 1) / 2
_GOLDEN_STEPS = 70


class HasMoments(Protocol):
    """A distribution that gives α_n = E cos nθ and β_n = E sin nθ."""

    def cosine_moment(self, n: int | Tensor) -> Tensor: ...

    def sine_moment(self, n: int | Tensor) -> Tensor: ...


def least_square_error(fit: HasMoments, target: HasMoments | Tensor, terms: int = 4096) -> Tensor:
    """Δ = ∫ (f_fit − f_target)² dθ, by Parseval from the moments (Theorem 2).

        Δ = (1/π) Σ_n [(α_n,fit − α_n,target)² + (β_n,fit − β_n,target)²]

    `target` may also be the cosine moments α₁ … α_N of a symmetric distribution along the last
    dimension; the sum then ends at N.

        >>> from wcdas.circular import WrappedCauchy
        >>> least_square_error(WrappedCauchy(0.5), WrappedCauchy(0.0))
        tensor(0.1061)
    """
    if isinstance(target, Tensor):
        n = torch.arange(1, target.shape[-1] + 1, device=target.device)
        cosine, sine = target, torch.zeros_like(target)
    else:
        n = torch.arange(1, terms + 1)
        cosine, sine = target.cosine_moment(n), target.sine_moment(n)
    squares = (fit.cosine_moment(n) - cosine).square() + (fit.sine_moment(n) - sine).square()
    return squares.sum(-1) / math.pi


@torch.no_grad()
def least_square_variance(family: Callable[[Tensor, Tensor], Tensor], target: Tensor) -> Tensor:
    """The circular variance 1 − α₁ at which a family's moments come nearest to `target`.

    `family(variance, n)` gives the moments of orders n in shape variance.shape + n.shape, and
    `target` holds α₁ … α_N in its last dimension. A grid finds the lowest valley, golden-section
    search its bottom.
    """
    target = target.double()
    n = torch.arange(1, target.shape[-1] + 1, device=target.device)

    def error(t: Tensor) -> Tensor:
        return (family(torch.exp(-t), n) - target).square().sum(-1)

    grid = torch.linspace(0, _LONGEST, _GRID_POINTS, dtype=torch.float64, device=target.device)
    moments = family(torch.exp(-grid), n)
    nearest = (moments.square().sum(-1) - 2 * target @ moments.mT).argmin(-1)
    low = grid[(nearest - 1).clamp(min=0)]
    high = grid[(nearest + 1).clamp(max=_GRID_POINTS - 1)]

    for _ in range(_GOLDEN_STEPS):
        left = high - _GOLDEN * (high - low)
        right = low + _GOLDEN * (high - low)
        left_error, right_error = error(torch.stack([left, right]))
        left_is_lower = left_error < right_error
        low = torch.where(left_is_lower, low, left)
        high = torch.where(left_is_lower, right, high)
    return torch.exp(-(low + high) / 2)

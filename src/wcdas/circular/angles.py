"""Arithmetic on angles, and sums over the trigonometric moments of a distribution."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

MAX_TERMS = 2**22
_ELEMENTS_AT_ONCE = 2**22

Moments = Callable[[Tensor], Tensor]


def wrap(angle: Tensor) -> Tensor:
    """The same angle in [−π, π), unchanged where it is there already."""
    angle = torch.fmod(angle, 2 * math.pi)
    angle = torch.where(angle >= math.pi, angle - 2 * math.pi, angle)
    return torch.where(angle < -math.pi, angle + 2 * math.pi, angle)


def one_minus_cos(angle: Tensor) -> Tensor:
    """1 − cos θ = 2 sin²(θ/2), without the cancellation near 0."""
    return 2 * torch.sin(angle / 2).square()


def mean_and_variance(angles: Tensor) -> tuple[Tensor, Tensor]:
    """The mean direction and the circular variance along the last dimension."""
    mean = torch.atan2(torch.sin(angles).mean(-1), torch.cos(angles).mean(-1))
    return mean, one_minus_cos(angles - mean[..., None]).mean(-1)


def cosine_sum(moments: Moments, angle: Tensor, terms: int) -> Tensor:
    """Σ α_n cos nθ for n = 1 … terms; `moments` maps orders [N] to α of shape batch + [N]."""
    return _sum(lambda n, angles: moments(n) * torch.cos(angles), angle, terms)


def sine_sum(moments: Moments, angle: Tensor, terms: int) -> Tensor:
    """Σ α_n sin(nθ)/n for n = 1 … terms, the integral of `cosine_sum` from 0 to θ."""
    return _sum(lambda n, angles: moments(n) * torch.sin(angles) / n, angle, terms)


def _sum(term: Callable[[Tensor, Tensor], Tensor], angle: Tensor, terms: int) -> Tensor:
    # In float32 the phase nθ of a late term would be noise.
    angles = angle.double()[..., None]
    chunk = max(1, _ELEMENTS_AT_ONCE // max(1, angle.numel()))
    total = torch.zeros_like(angle, dtype=torch.float64)
    for first in range(1, terms + 1, chunk):
        n = torch.arange(first, min(first + chunk, terms + 1), device=angle.device)
        total = total + term(n, n * angles).sum(-1)
    return total.to(angle.dtype)

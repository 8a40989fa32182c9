"""Arithmetic on angles."""

import math

import torch
from torch import Tensor


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

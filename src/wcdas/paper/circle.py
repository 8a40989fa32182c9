"""The circle as equally spaced angles, on which sums of smooth functions are integrals."""

import math

import torch
from torch import Tensor


def angles(count: int = 4096) -> Tensor:
    return torch.arange(count, dtype=torch.float64) * (2 * math.pi / count) - math.pi


def integral(values: Tensor) -> Tensor:
    """∫ over the circle of a function given at `angles` (last dimension)."""
    return values.mean(-1) * 2 * math.pi

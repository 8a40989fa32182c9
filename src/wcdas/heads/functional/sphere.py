"""Directions of vectors."""

import torch
from torch import Tensor


def unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """v / ‖v‖ and ‖v‖ along the last dimension; a zero vector stays zero, and so does its gradient.

    `torch.nn.functional.normalize` would give a zero vector a gradient of 1/eps.
    """
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    zero = norm == 0
    direction = vectors.masked_fill(zero, 0) / norm.masked_fill(zero, 1)
    return direction, norm.squeeze(-1)

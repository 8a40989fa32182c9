"""Real pictures for the tests: tiles of scikit-learn's sample photographs and its digits."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor


@pytest.fixture(scope="session")
def photographs() -> list[Image.Image]:
    """Two colour photographs of 640 × 427 pixels."""
    return [Image.fromarray(image) for image in load_sample_images().images]


@pytest.fixture(scope="session")
def tiles(photographs: list[Image.Image]) -> Callable[..., Tensor]:
    """Square tiles of the photographs, uint8 (count, 3, size, size), a few of one level."""
    arrays = [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in photographs]

    @cache
    def cut(size: int = 32, count: int = 256) -> Tensor:
        step = size // 2
        parts = [a.unfold(1, size, step).unfold(2, size, step).flatten(1, 2) for a in arrays]
        stacked = torch.cat(parts, dim=1).permute(1, 0, 2, 3)
        spread = torch.linspace(0, len(stacked) - 1, count).long()
        chosen = stacked[spread].contiguous()
        chosen[1], chosen[2] = 0, 255
        chosen[3] = chosen[3].clamp(100, 101)
        return chosen

    return cut


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """Handwritten digits, uint8 (N, 1, 8, 8) in 0 … 255, and their labels."""
    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images * 255 / 16).round().to(torch.uint8)
    return pixels[:, None].contiguous(), torch.from_numpy(bunch.target).long()

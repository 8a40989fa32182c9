"""On a GPU: the same random numbers, and the same augmented images."""

import pytest
import torch

from wcdas.data import random
from wcdas.data.augment import create_augmentation, list_augmentations

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_random_numbers_equal_those_of_the_cpu():
    counters = torch.arange(100_000)
    assert random.bits(3, counters.cuda(), 8).cpu().equal(random.bits(3, counters, 8))
    assert random.uniform(3, counters.cuda(), 8).cpu().equal(random.uniform(3, counters, 8))


@pytest.mark.parametrize("size", [32, 112])
@pytest.mark.parametrize("policy", list_augmentations())
def test_images_equal_those_of_the_cpu(policy, size, tiles):
    images, positions = tiles(size, 64), torch.arange(64)
    augment = create_augmentation(policy, size=size, mean=(0.5, 0.4, 0.3))
    expected = augment(images, 5, positions)
    found = augment(images.cuda(), 5, positions).cpu()
    # A sine may differ in its last bit, and with it the nearest of two equally near pixels.
    assert (found != expected).double().mean() < 1e-3

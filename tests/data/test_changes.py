"""Kinds of operations: neutral parameters, and the same result for all images and for some."""

import pytest
import torch

from wcdas import rng
from wcdas.data.autoaugment import CIFAR10_POLICY, RAND_AUGMENT, AutoAugment, Table, magnitude
from wcdas.data.changes import KINDS, Constant, apply_changes


def done_to_all(images, changes):
    """What a GPU does."""
    for kind, parameters in changes.items():
        images = KINDS[kind].function(images, parameters)
    return images


@pytest.mark.parametrize("name", KINDS)
def test_neutral_parameters_change_nothing(name, tiles, digits):
    function, neutral = KINDS[name]
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (16, 3, 27, 23), generator=generator).to(torch.uint8)
    for images in (tiles(), digits[0][:64], noise):
        assert function(images, neutral.expand(len(images), -1)).equal(images)


@pytest.mark.parametrize("kind", ["rgb", "grey", "odd"])
def test_all_images_or_those_that_change(kind, tiles, digits):
    images = {"rgb": tiles(), "grey": digits[0][:256], "odd": tiles(27)}[kind]
    size, before = images.shape[-1], images.clone()
    u = rng.uniform(4, torch.arange(256), 3)
    pair = (u[:, 0] * len(CIFAR10_POLICY)).long()
    for _, table in AutoAugment(size).steps:
        changes = table.lookup(pair, u[:, 1], u[:, 2] < 0.7)
        assert done_to_all(images, changes).equal(apply_changes(images, changes))
    rows = [(name, magnitude(name, 20, 31, size)) for name in RAND_AUGMENT]
    changes = Table(rows, size).lookup(pair % len(rows), u[:, 1])
    assert set(changes) == set(KINDS) - {"hue"}
    assert done_to_all(images, changes).equal(apply_changes(images, changes))
    assert images.equal(before)


def test_images_larger_than_a_part(tiles):
    images = tiles(224, 16)
    weights = torch.rand(16, 3, generator=torch.Generator().manual_seed(0))
    weights[5] = torch.tensor([1.0, 0, 0])
    found = apply_changes(images, {"blend": weights, "hue": weights[:, :1] / 2 - 0.5})
    for image, weight, result in zip(images, weights, found, strict=True):
        changes = {"blend": weight[None], "hue": weight[None, :1] / 2 - 0.5}
        assert done_to_all(image[None], changes)[0].equal(result)


def test_a_constant_is_copied_once():
    constant = Constant(torch.arange(3))
    there = constant.on(torch.device("meta"))
    assert there.device.type == "meta"
    assert constant.on(torch.device("meta")) is there
    assert constant.on(torch.device("cpu")).tolist() == [0, 1, 2]

"""Batched operations against torchvision's, image by image."""

import math

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from wcdas.data import operations

PARAMETER = torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def images_of(tiles, digits):
    return {"rgb": tiles(32, 128), "odd": tiles(27, 64)[..., :-4], "grey": digits[0][:64]}


def sheared(image, x=0.0, y=0.0):
    degrees = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    return tv.affine(image, 0.0, [0, 0], 1.0, degrees, center=[0, 0])


# name: (range of the parameter, torchvision's, levels off, share of pixels that may be off)
REFERENCE = {
    "brightness": ((0.1, 1.9), tv.adjust_brightness, 0, 0),
    "contrast": ((0.1, 1.9), tv.adjust_contrast, 1, 1e-3),
    "saturation": ((0.1, 1.9), tv.adjust_saturation, 1, 1e-2),
    "sharpness": ((0.1, 1.9), tv.adjust_sharpness, 1, 1e-2),
    "solarize": ((0.0, 255.0), tv.solarize, 0, 0),
    "shear_x": ((-0.3, 0.3), lambda image, m: sheared(image, x=m), 0, 0),
    "shear_y": ((-0.3, 0.3), lambda image, m: sheared(image, y=m), 0, 0),
    "translate_x": (
        (-15, 15),
        lambda image, m: tv.affine(image, 0.0, [int(m), 0], 1.0, [0.0, 0.0]),
        0,
        0,
    ),
    "translate_y": (
        (-15, 15),
        lambda image, m: tv.affine(image, 0.0, [0, int(m)], 1.0, [0.0, 0.0]),
        0,
        0,
    ),
    "rotate": ((-30.0, 30.0), tv.rotate, 0, 0),
}


@pytest.mark.parametrize("kind", ["rgb", "odd", "grey"])
@pytest.mark.parametrize("name", REFERENCE)
def test_equals_torchvision(name, kind, images_of):
    (low, high), reference, levels, share = REFERENCE[name]
    images = images_of[kind]
    before = images.clone()
    parameter = low + (high - low) * torch.rand(len(images), generator=PARAMETER).double()
    parameter[:3] = torch.tensor([low, high, (low + high) / 2])
    result = getattr(operations, name)(images, parameter)
    expected = torch.stack(
        [reference(image, float(p)) for image, p in zip(images, parameter, strict=True)]
    )
    difference = (result.int() - expected.int()).abs()
    assert result.dtype == torch.uint8
    assert difference.max() <= levels
    assert (difference > 0).double().mean() <= share
    assert images.equal(before)


@pytest.mark.parametrize("kind", ["rgb", "odd", "grey"])
@pytest.mark.parametrize("name", ["autocontrast", "equalize", "invert"])
def test_equals_torchvision_without_parameter(name, kind, images_of):
    images = images_of[kind]
    expected = torch.stack([getattr(tv, name)(image) for image in images])
    assert getattr(operations, name)(images).equal(expected)


@pytest.mark.parametrize("kind", ["rgb", "grey"])
def test_posterize_equals_torchvision(kind, images_of):
    images = images_of[kind]
    bits = torch.arange(len(images)) % 9
    expected = [tv.posterize(image, int(b)) for image, b in zip(images, bits, strict=True)]
    assert operations.posterize(images, bits).equal(torch.stack(expected))


def test_a_factor_of_one_changes_nothing(tiles):
    images, one = tiles(), torch.ones(256)
    for name in ("brightness", "contrast", "saturation", "sharpness"):
        assert getattr(operations, name)(images, one).equal(images), name
    for name in ("shear_x", "shear_y", "translate_x", "translate_y", "rotate"):
        assert getattr(operations, name)(images, 0 * one).equal(images), name


def test_sharpness_leaves_images_without_an_inside(digits):
    images = digits[0][:4, :, :2]
    assert operations.sharpness(images, torch.full((4,), 0.5)).equal(images)


def test_flip(tiles):
    images = tiles()
    chosen = torch.arange(256) % 3 == 0
    flipped = operations.horizontal_flip(images, chosen)
    assert flipped[chosen].equal(tv.horizontal_flip(images[chosen]))
    assert flipped[~chosen].equal(images[~chosen])


@pytest.mark.parametrize(("kind", "padding"), [("rgb", 4), ("odd", 3), ("grey", 1)])
def test_crop(kind, padding, images_of):
    images = images_of[kind]
    top = torch.arange(len(images)) % (2 * padding + 1)
    left = torch.arange(len(images)) * 7 % (2 * padding + 1)
    expected = [
        tv.crop(tv.pad(image, [padding]), int(t), int(i), *image.shape[-2:])
        for image, t, i in zip(images, top, left, strict=True)
    ]
    assert operations.crop(images, top, left, padding).equal(torch.stack(expected))


@pytest.mark.parametrize("length", [16, 5])
def test_cutout(length, tiles):
    images = tiles()
    y, x = torch.arange(256) % 32, torch.arange(256) * 5 % 32
    expected = images.clone()
    for image, i, j in zip(expected, y.tolist(), x.tolist(), strict=True):
        top, left = i - length // 2, j - length // 2
        window = (slice(max(top, 0), top + length), slice(max(left, 0), left + length))
        for channel, level in zip(image, (10, 20, 30), strict=True):
            channel[window] = level
    assert operations.cutout(images, y, x, length, (10, 20, 30)).equal(expected)


def test_resized_crop_enlarges_a_box(tiles):
    images = tiles(32, 16)
    boxes = torch.tensor([[0, 0, 32, 32], [3, 5, 20, 24], [10, 0, 9, 12], [31, 31, 1, 1]]).repeat(
        4, 1
    )
    result = operations.resized_crop(images, boxes, 32)
    for image, box, found in zip(images, boxes.tolist(), result, strict=True):
        expected = tv.resized_crop(image, *box, [32, 32], antialias=False)
        assert (found.int() - expected.int()).abs().max() <= 1
    assert result[0].equal(images[0])

"""Batched operations against torchvision's, image by image."""

import math

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from wcdas import rng
from wcdas.data import operations
from wcdas.data.operations import KINDS, apply_changes
from wcdas.data.steps import CIFAR10_POLICY, OPERATIONS, RAND_AUGMENT, Choices, magnitude_of


@pytest.fixture(scope="module")
def images_of(tiles, digits):
    return {"rgb": tiles(32, 128), "odd": tiles(27, 64)[..., :-4], "grey": digits[0][:64]}


def sheared(image, x=0.0, y=0.0):
    degrees = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    return tv.affine(image, 0.0, [0, 0], 1.0, degrees, center=[0, 0])


def matrices(name, images, parameter):
    side = images.shape[-1 if name == "ShearY" else -2]
    return torch.tensor([OPERATIONS[name](float(p), side)[1] for p in parameter])


def columns(*parameters):
    return torch.stack(torch.broadcast_tensors(*parameters), dim=1)


ZERO = torch.zeros(())
# name: (range of the parameter, ours, torchvision's, levels off, share of pixels that may be off)
REFERENCE = {
    "brightness": (
        (0.1, 1.9),
        lambda images, f: operations.blend(images, columns(f, ZERO, ZERO)),
        tv.adjust_brightness,
        0,
        0,
    ),
    "contrast": (
        (0.1, 1.9),
        lambda images, f: operations.blend(images, columns(f, ZERO, 1 - f)),
        tv.adjust_contrast,
        1,
        1e-3,
    ),
    "saturation": (
        (0.1, 1.9),
        lambda images, f: operations.blend(images, columns(f, 1 - f, ZERO)),
        tv.adjust_saturation,
        1,
        5e-2,  # 0.011 where products are added unrounded (FMA), none elsewhere; twenty seeds
    ),
    "sharpness": (
        (0.1, 1.9),
        lambda images, f: operations.sharpness(images, columns(1 - f)),
        tv.adjust_sharpness,
        1,
        1e-2,
    ),
    "hue": (
        (-0.5, 0.5),
        lambda images, turn: operations.hue(images, columns(turn)),
        tv.adjust_hue,
        1,
        1e-3,
    ),
    "solarize": (
        (0.0, 255.0),
        lambda images, threshold: operations.solarize(images, columns(threshold)),
        tv.solarize,
        0,
        0,
    ),
    "shear_x": (
        (-0.3, 0.3),
        "ShearX",
        lambda image, m: sheared(image, x=m),
        0,
        0,
    ),
    "shear_y": (
        (-0.3, 0.3),
        "ShearY",
        lambda image, m: sheared(image, y=m),
        0,
        0,
    ),
    "translate_x": (
        (-15, 15),
        "TranslateX",
        lambda image, m: tv.affine(image, 0.0, [int(m), 0], 1.0, [0.0, 0.0]),
        0,
        0,
    ),
    "translate_y": (
        (-15, 15),
        "TranslateY",
        lambda image, m: tv.affine(image, 0.0, [0, int(m)], 1.0, [0.0, 0.0]),
        0,
        0,
    ),
    "rotate": ((-30.0, 30.0), "Rotate", tv.rotate, 0, 0),
}
AFFINE = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")


@pytest.mark.parametrize("kind", ["rgb", "odd", "grey"])
@pytest.mark.parametrize("name", REFERENCE)
def test_equals_torchvision(name, kind, images_of):
    (low, high), ours, reference, levels, share = REFERENCE[name]
    images = images_of[kind]
    before = images.clone()
    drawn = torch.rand(len(images), generator=torch.Generator().manual_seed(0)).double()
    parameter = low + (high - low) * drawn
    parameter[:3] = torch.tensor([low, high, (low + high) / 2])
    if name in AFFINE:
        result = operations.affine(images, matrices(ours, images, parameter))
    else:
        result = ours(images, parameter)
    expected = torch.stack(
        [reference(image, float(p)) for image, p in zip(images, parameter, strict=True)]
    )
    difference = (result.int() - expected.int()).abs()
    assert result.dtype == torch.uint8
    assert difference.max() <= levels
    assert (difference > 0).double().mean() <= share
    assert images.equal(before)


@pytest.mark.parametrize("kind", ["rgb", "odd", "grey"])
@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
def test_only_the_chosen_images_are_spread(name, kind, images_of):
    images = images_of[kind]
    chosen = torch.arange(len(images)) % 3 != 1
    found = getattr(operations, name)(images, chosen[:, None].float())
    expected = torch.stack([getattr(tv, name)(image) for image in images])
    assert found[chosen].equal(expected[chosen])
    assert found[~chosen].equal(images[~chosen])


def test_equalize_of_few_levels_and_pixels():
    """Images where a 255th of the pixels is less than one stay; channels are told apart."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 3, 24, 24), generator=generator).to(torch.uint8)
    images[::2, 1] //= 128
    images[::3, 2, :12] = 255
    images[5, 0] = 7
    small = images[..., :15, :15]
    for pixels in (images, small):
        expected = torch.stack([tv.equalize(image) for image in pixels])
        assert operations.equalize(pixels, torch.ones(40, 1)).equal(expected)
    assert not operations.equalize(images, torch.ones(40, 1)).equal(images)
    assert operations.equalize(small, torch.ones(40, 1)).equal(small)


def test_invert_is_to_solarize_from_zero(images_of):
    for images in images_of.values():
        assert operations.solarize(images, torch.zeros(len(images), 1)).equal(tv.invert(images))


@pytest.mark.parametrize("kind", ["rgb", "grey"])
def test_posterize_equals_torchvision(kind, images_of):
    images = images_of[kind]
    bits = torch.arange(len(images)) % 9
    expected = [tv.posterize(image, int(b)) for image, b in zip(images, bits, strict=True)]
    kept = (256 - 2 ** (8 - bits))[:, None]
    assert operations.posterize(images, kept).equal(torch.stack(expected))


def test_a_whole_turn_of_the_hue_changes_nothing():
    """All colours with levels in steps of 5: in HSV and back, none may be lost."""
    levels = torch.arange(0, 256, 5, dtype=torch.uint8)
    colours = torch.stack(torch.meshgrid(levels, levels, levels, indexing="ij"), dim=1)
    for turn in (0.0, 1.0, -1.0):
        assert operations.hue(colours, torch.full((len(levels), 1), turn)).equal(colours)
    third = operations.hue(colours, torch.full((len(levels), 1), 1 / 3))
    assert (third.int() - colours.roll(1, 1).int()).abs().max() <= 1


def test_blend_to_grey_equals_torchvision(tiles, digits):
    images = tiles()
    weights = torch.tensor([0.0, 1.0, 0.0]).expand(256, 3)
    found = operations.blend(images, weights)
    expected = tv.rgb_to_grayscale(images, num_output_channels=3)
    assert (found.int() - expected.int()).abs().max() <= 1
    assert (found != expected).double().mean() < 0.01
    assert operations.blend(digits[0][:256], weights).equal(digits[0][:256])


def test_sharpness_leaves_images_without_an_inside(digits):
    images = digits[0][:4, :, :2]
    assert operations.sharpness(images, torch.full((4, 1), 0.5)).equal(images)


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


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.2, 1.0)])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (40, 90), (50, 3), (1, 1)])
def test_boxes_are_drawn_as_torchvision_draws_them(height, width, scale):
    """RandomResizedCrop.make_params in plain Python, fed with the same numbers."""
    u = rng.uniform(9, torch.arange(500), 4 * operations.TRIES)
    found = operations.crop_boxes(u, height, width, scale)
    expected, fallbacks = [], 0
    for tries in u.double().view(-1, operations.TRIES, 4).tolist():
        for share, shape, down, right in tries:
            area = height * width * (scale[0] + share * (scale[1] - scale[0]))
            ratio = math.exp(math.log(3 / 4) + shape * (math.log(4 / 3) - math.log(3 / 4)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                box = [int(down * (height - h + 1)), int(right * (width - w + 1)), h, w]
                break
        else:
            fallbacks += 1
            w, h = width, height
            if width / height < 3 / 4:
                h = round(width / (3 / 4))
            elif width / height > 4 / 3:
                w = round(height * (4 / 3))
            box = [(height - h) // 2, (width - w) // 2, h, w]
        expected.append(box)
    assert found.tolist() == expected
    assert (fallbacks > 0) == (width != height)


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
    for column in zip(*CIFAR10_POLICY, strict=True):
        rows = [(name, magnitude_of(name, bin_, 10, size)) for name, _, bin_ in column]
        changes = Choices(rows, size).changes(pair, u[:, 1], u[:, 2] < 0.7)
        assert done_to_all(images, changes).equal(apply_changes(images, changes))
    rows = [(name, magnitude_of(name, 20, 31, size)) for name in RAND_AUGMENT]
    changes = Choices(rows, size).changes(pair % len(rows), u[:, 1])
    assert set(changes) == set(KINDS) - {"hue", "blur"}
    assert done_to_all(images, changes).equal(apply_changes(images, changes))
    assert images.equal(before)


def test_images_larger_than_a_part(tiles):
    images = tiles(224, 16)
    weights = torch.rand(16, 3, generator=torch.Generator().manual_seed(0))
    weights[5] = torch.tensor([1.0, 0, 0])
    sigma = torch.linspace(0, 2, 16)[:, None]  # the first is left as it is
    changes = {"blend": weights, "hue": weights[:, :1] / 2 - 0.5, "blur": sigma}
    found = apply_changes(images, changes)
    for image, weight, blur, result in zip(images, weights, sigma, found, strict=True):
        changes = {"blend": weight[None], "hue": weight[None, :1] / 2 - 0.5, "blur": blur[None]}
        assert done_to_all(image[None], changes)[0].equal(result)

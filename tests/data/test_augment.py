"""Policies: AutoAugment and RandAugment as torchvision has them, and every image by itself."""

import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from wcdas.data import random
from wcdas.data.augment import ColourJitter, create_augmentation, list_augmentations
from wcdas.data.autoaugment import (
    CIFAR10_POLICY,
    NAMES,
    RAND_AUGMENT,
    SIGNED,
    AutoAugment,
    RandAugment,
    apply_operations,
    magnitude,
)
from wcdas.errors import InputError

THEIRS = v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)
MAY_ROUND = {"Color", "Contrast", "Sharpness"}
POSITIONS = torch.arange(256)


def theirs(image, name, m):
    return THEIRS._apply_image_or_video_transform(
        image, name, m, THEIRS.interpolation, THEIRS._fill
    )


def share_off(found, expected):
    return ((found.int() - expected.int()).abs() > 0).double().mean()


def test_table_is_that_of_torchvision():
    assert THEIRS._policies == CIFAR10_POLICY
    assert set(RAND_AUGMENT) == set(v2.RandAugment._AUGMENTATION_SPACE)


@pytest.mark.parametrize("bins", [10, 31])
@pytest.mark.parametrize("size", [8, 32])
def test_magnitudes_are_those_of_torchvision(bins, size):
    for name, (space, signed) in v2.AutoAugment._AUGMENTATION_SPACE.items():
        values = space(bins, size, size)
        for bin_ in range(bins):
            expected = 0.0 if values is None else float(values[bin_])
            assert magnitude(name, bin_, bins, size) == expected
        assert (name in SIGNED) == signed


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_at_every_magnitude(name, tiles):
    values = [magnitude(name, bin_, bins, 32) for bins in (10, 31) for bin_ in range(bins)]
    values += [-value for value in values] if name in SIGNED else []
    images = tiles()[: len(values)]
    m = torch.tensor(values, dtype=torch.float64)
    found = apply_operations(images, torch.full((len(m),), NAMES.index(name)), m)
    expected = torch.stack([theirs(i, name, v) for i, v in zip(images, values, strict=True)])
    if name in MAY_ROUND:
        assert (found.int() - expected.int()).abs().max() <= 1
        assert share_off(found, expected) < 0.01
    else:
        assert found.equal(expected)


@pytest.mark.parametrize("pair", range(25))
def test_autoaugment_applies_the_drawn_pair(pair, tiles):
    """Each image with its own choice of which of the two operations act, and of their signs."""
    images = tiles()[:128]
    u = random.uniform(pair, torch.arange(128), 5)
    u[:, 0] = (pair + 0.5) / 25
    expected = []
    for image, numbers in zip(images, u, strict=True):
        for step, (name, probability, bin_) in enumerate(CIFAR10_POLICY[pair]):
            if numbers[1 + 2 * step] < probability:
                sign = -1 if name in SIGNED and numbers[2 + 2 * step] < 0.5 else 1
                image = theirs(image, name, sign * magnitude(name, bin_, 10, 32))
        expected.append(image)
    found = AutoAugment(32)(images, u)
    # An earlier level that is one off moves a whole histogram in Equalize.
    names = [name for name, _, _ in CIFAR10_POLICY[pair]]
    if MAY_ROUND.isdisjoint(names):
        assert found.equal(torch.stack(expected))
    else:
        assert share_off(found, torch.stack(expected)) < 0.01


def test_rand_augment_draws_every_operation_as_often(tiles):
    choices = (random.uniform(1, torch.arange(28_000), 4)[:, 0] * len(RAND_AUGMENT)).long()
    times = torch.bincount(choices, minlength=14)
    assert ((times - 2000).abs() < 5 * 2000**0.5).all()
    images = tiles()[:128]
    u = random.uniform(1, torch.arange(128), 4)
    expected = []
    for image, numbers in zip(images, u, strict=True):
        for choice, minus in numbers.view(2, 2):
            name = RAND_AUGMENT[int(choice * 14)]
            sign = -1 if name in SIGNED and minus < 0.5 else 1
            image = theirs(image, name, sign * magnitude(name, 9, 31, 32))
        expected.append(image)
    assert share_off(RandAugment(32)(images, u), torch.stack(expected)) < 0.01


@pytest.mark.parametrize("policy", list_augmentations())
@pytest.mark.parametrize("kind", ["rgb", "grey", "large"])
def test_an_image_does_not_depend_on_its_neighbours(policy, kind, tiles, digits):
    images = {"rgb": tiles(), "grey": digits[0][:256], "large": tiles(112, 24)}[kind]
    channels, size = images.shape[1], images.shape[-1]
    augment = create_augmentation(policy, size=size, mean=[0.4] * channels)
    key, positions = random.stream(5), POSITIONS[: len(images)] + 1000
    whole = augment(images, key, positions)
    assert whole.dtype == torch.uint8
    assert whole.shape == images.shape
    alone = [
        augment(images[i : i + 1], key, positions[i : i + 1]) for i in range(0, len(images), 3)
    ]
    assert torch.cat(alone).equal(whole[::3])
    backwards = augment(images.flip(0), key, positions.flip(0))
    assert backwards.flip(0).equal(whole)
    if policy != "none":
        assert not augment(images, key + 1, positions).equal(whole)
        assert not augment(images, key, positions + 1).equal(whole)


def test_standard_is_crop_and_flip(tiles):
    images = tiles()
    augmented = create_augmentation("standard", size=32)(images, 3, POSITIONS)
    u = random.uniform(3, POSITIONS, 3)
    for image, found, (top, left, mirror) in zip(images, augmented, u, strict=True):
        expected = tv.crop(tv.pad(image, [4]), int(top * 9), int(left * 9), 32, 32)
        assert found.equal(tv.horizontal_flip(expected) if mirror < 0.5 else expected)
    assert len((u[:, 0] * 9).long().unique()) == 9


def test_options_switch_steps_off_and_scale_them(digits):
    pixels = digits[0][:256]
    shifted = create_augmentation("standard", size=8, flip=False)(pixels, 3, POSITIONS)
    u = random.uniform(3, POSITIONS, 2)
    for image, found, (top, left) in zip(pixels, shifted, u, strict=True):
        assert found.equal(tv.crop(tv.pad(image, [1]), int(top * 3), int(left * 3), 8, 8))
    still = create_augmentation("standard", size=8, flip=False, padding=0)
    assert still(pixels, 3, POSITIONS).equal(pixels)
    wide = create_augmentation("standard", size=8, flip=False, padding=4)
    assert not wide(pixels, 3, POSITIONS).equal(shifted)


def test_strong_ends_with_cutout_in_the_mean(tiles):
    mean = (0.5, 0.25, 0.1)
    covered = create_augmentation("strong", size=32, mean=mean)(tiles(), 7, POSITIONS)
    plain = create_augmentation("strong", size=32, mean=mean, cutout=0)(tiles(), 7, POSITIONS)
    changed = (covered != plain).any(dim=1)
    levels = torch.tensor([128, 64, 26], dtype=torch.uint8)
    assert (covered.movedim(1, -1)[changed] == levels).all()
    assert 64 <= changed.sum(dim=(1, 2)).median() <= 256
    assert changed.sum(dim=(1, 2)).max() == 256


def test_large_images_are_cropped_by_the_loader_and_jittered():
    augment = create_augmentation("standard", size=224)
    assert augment.resized_crop
    assert not create_augmentation("none", size=224).resized_crop
    assert not create_augmentation("standard", size=32).resized_crop
    assert [type(step).__name__ for step in augment.steps] == ["Flip", "ColourJitter"]


def test_colour_jitter_equals_torchvision(tiles):
    images = tiles(64, 48)
    u = random.uniform(2, torch.arange(48), 4)
    found = ColourJitter(0.4)(images, u)
    jitter = v2.ColorJitter(0.4, 0.4, 0.4)
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    everything = []
    for image, numbers, result in zip(images, u, found, strict=True):
        factors = 1 + (numbers[1:] * 2 - 1) * 0.4
        names = ("brightness_factor", "contrast_factor", "saturation_factor")
        parameters = dict(zip(names, map(float, factors), strict=True))
        order = torch.tensor(orders[int(numbers[0] * 6)])
        expected = jitter.transform(image, {"fn_idx": order, "hue_factor": None, **parameters})
        # One level off, times a later contrast of up to 1.4.
        assert (result.int() - expected.int()).abs().max() <= 2
        everything.append(expected)
    assert share_off(found, torch.stack(everything)) < 0.01


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        ("stong", {}, "'strong'"),
        ("strong", {"cut_out": 8}, "'cutout'"),
        ("none", {"padding": 1}, "padding"),
        ("standard", {"padding": -1}, "padding is -1"),
        ("standard", {"jitter": 1.5}, "jitter is 1.5"),
        ("strong", {"cutout": 500}, "cutout is 500"),
        ("rand-augment", {"magnitude": 31}, "magnitude 31"),
    ],
)
def test_bad_input_is_named(policy, options, message):
    with pytest.raises(InputError, match=message):
        create_augmentation(policy, size=32, **options)

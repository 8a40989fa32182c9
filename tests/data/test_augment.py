"""Policies: AutoAugment and its kin as torchvision has them, and every image by itself."""

import math
from itertools import permutations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from wcdas import rng
from wcdas.data.augment import AUGMENTATIONS, create_augmentation
from wcdas.data.operations import apply_changes, crop_boxes, erased_boxes
from wcdas.data.steps import (
    CIFAR10_POLICY,
    OPERATIONS,
    RAND_AUGMENT,
    SIGNED,
    USUAL,
    WIDE,
    Choices,
    auto_augment,
    colour_jitter,
    magnitude_of,
    on_devices,
    rand_augment,
    random_blur,
    random_crop,
    random_cutout,
    random_erasing,
    random_flip,
    random_grey,
    random_resized_crop,
    random_rotation,
    trivial_augment,
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
    assert set(RAND_AUGMENT) == set(v2.TrivialAugmentWide._AUGMENTATION_SPACE)


@pytest.mark.parametrize("bins", [10, 31])
@pytest.mark.parametrize("size", [8, 32])
def test_magnitudes_are_those_of_torchvision(bins, size):
    for name, (space, signed) in v2.AutoAugment._AUGMENTATION_SPACE.items():
        values = space(bins, size, size)
        for bin_ in range(bins):
            expected = 0.0 if values is None else float(values[bin_])
            assert magnitude_of(name, bin_, bins, size) == expected
        assert (name in SIGNED) == signed


@pytest.mark.parametrize("size", [8, 32, 224])
def test_wide_magnitudes_are_those_of_torchvision(size):
    for name, (space, signed) in v2.TrivialAugmentWide._AUGMENTATION_SPACE.items():
        values = space(31, size, size)
        for bin_ in range(31):
            expected = 0.0 if values is None else float(values[bin_])
            assert magnitude_of(name, bin_, 31, size, WIDE) == expected
        assert (name in SIGNED) == signed


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_at_every_magnitude(name, tiles):
    spaces = [(10, USUAL), (31, USUAL), (31, WIDE)]
    rows = [(name, magnitude_of(name, b, n, 32, reach)) for n, reach in spaces for b in range(n)]
    images, row = tiles()[: 2 * len(rows)], torch.arange(2 * len(rows)) % len(rows)
    minus = torch.arange(2 * len(rows)) >= len(rows)
    found = apply_changes(images, Choices(rows, 32).changes(row, sign=1 - minus.float()))
    values = [m for _, m in rows] + [-m if name in SIGNED else m for _, m in rows]
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
    u = rng.uniform(pair, torch.arange(128), 5)
    u[:, 0] = (pair + 0.5) / 25
    expected = []
    for image, numbers in zip(images, u, strict=True):
        for step, (name, probability, bin_) in enumerate(CIFAR10_POLICY[pair]):
            if numbers[1 + 2 * step] < probability:
                sign = -1 if name in SIGNED and numbers[2 + 2 * step] < 0.5 else 1
                image = theirs(image, name, sign * magnitude_of(name, bin_, 10, 32))
        expected.append(image)
    found = auto_augment(32).apply(images, u)
    # An earlier level that is one off moves a whole histogram in Equalize.
    names = [name for name, _, _ in CIFAR10_POLICY[pair]]
    if MAY_ROUND.isdisjoint(names):
        assert found.equal(torch.stack(expected))
    else:
        assert share_off(found, torch.stack(expected)) < 0.01


def test_rand_augment_draws_every_operation_as_often(tiles):
    choices = (rng.uniform(1, torch.arange(28_000), 4)[:, 0] * len(RAND_AUGMENT)).long()
    times = torch.bincount(choices, minlength=14)
    assert ((times - 2000).abs() < 5 * 2000**0.5).all()
    images = tiles()[:128]
    u = rng.uniform(1, torch.arange(128), 4)
    expected = []
    for image, numbers in zip(images, u, strict=True):
        for choice, minus in numbers.view(2, 2):
            name = RAND_AUGMENT[int(choice * 14)]
            sign = -1 if name in SIGNED and minus < 0.5 else 1
            image = theirs(image, name, sign * magnitude_of(name, 9, 31, 32))
        expected.append(image)
    assert share_off(rand_augment(32).apply(images, u), torch.stack(expected)) < 0.01


def test_trivial_augment_draws_operation_magnitude_and_sign(tiles):
    images = tiles()
    u = rng.uniform(1, POSITIONS, 3)
    u[:, 0] = (torch.arange(256) % 14 + 0.5) / 14
    expected = []
    for image, (choice, bin_, minus) in zip(images, u, strict=True):
        name = RAND_AUGMENT[int(choice * 14)]
        sign = -1 if name in SIGNED and minus < 0.5 else 1
        m = magnitude_of(name, int(bin_ * 31), 31, 32, WIDE)
        expected.append(theirs(image, name, sign * m))
    assert share_off(trivial_augment(32).apply(images, u), torch.stack(expected)) < 0.001


def test_flip(tiles):
    images = tiles()
    chosen = torch.arange(256) % 3 == 0
    flipped = random_flip().apply(images, torch.where(chosen, 0.49, 0.5)[:, None])
    assert flipped[chosen].equal(tv.horizontal_flip(images[chosen]))
    assert flipped[~chosen].equal(images[~chosen])


@pytest.mark.parametrize(("kind", "padding"), [("rgb", 4), ("odd", 3), ("grey", 1)])
def test_crop(kind, padding, tiles, digits):
    images = {"rgb": tiles(32, 128), "odd": tiles(27, 64)[..., :-4], "grey": digits[0][:64]}[kind]
    top = torch.arange(len(images)) % (2 * padding + 1)
    left = torch.arange(len(images)) * 7 % (2 * padding + 1)
    expected = [
        tv.crop(tv.pad(image, [padding]), int(t), int(i), *image.shape[-2:])
        for image, t, i in zip(images, top, left, strict=True)
    ]
    u = (torch.stack((top, left), dim=1) + 0.5) / (2 * padding + 1)
    assert random_crop(padding).apply(images, u).equal(torch.stack(expected))


@pytest.mark.parametrize("length", [16, 5])
def test_cutout(length, tiles):
    images = tiles()
    y, x = torch.arange(256) % 32, torch.arange(256) * 5 % 32
    fill = [10, 20, 30]
    expected = images.clone()
    for image, i, j in zip(expected, y.tolist(), x.tolist(), strict=True):
        top, left = i - length // 2, j - length // 2
        window = (slice(max(top, 0), top + length), slice(max(left, 0), left + length))
        for channel, level in zip(image, fill, strict=True):
            channel[window] = level
    u = (torch.stack((y, x), dim=1) + 0.5) / 32
    assert random_cutout(length, fill).apply(images, u).equal(expected)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (224, 224), (20, 90), (1, 1), (3, 2)])
def test_erased_boxes_are_those_of_torchvision(height, width):
    """The tries of torchvision's RandomErasing, with our numbers for its own."""
    u = rng.uniform(4, torch.arange(500), 40)
    low, high = math.log(0.3), math.log(3.3)
    for tries, found in zip(
        u.double().view(-1, 10, 4), erased_boxes(u, height, width), strict=True
    ):
        expected = [0, 0, 0, 0]
        for size, shape, down, right in tries.tolist():
            area = height * width * (0.02 + size * (0.33 - 0.02))
            aspect = math.exp(low + (1 - shape) * (high - low))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < h < height and 0 < w < width:
                expected = [int(down * (height - h + 1)), int(right * (width - w + 1)), h, w]
                break
        assert found.tolist() == expected


def test_erased_boxes_are_drawn_as_torchvision_draws_them():
    boxes = erased_boxes(rng.uniform(4, torch.arange(4000), 40), 32, 48)
    transform = v2.RandomErasing(p=1, value=0)
    torch.manual_seed(0)
    drawn = [transform.make_params([torch.empty(1, 32, 48)]) for _ in range(4000)]
    others = torch.tensor([[d[key] for key in "ijhw"] for d in drawn])
    for mine, other in zip(boxes.T.double(), others.T.double(), strict=True):
        error = (mine.var() / 4000 + other.var() / 4000).sqrt()
        assert abs(mine.mean() - other.mean()) <= 4.5 * error
        assert float(mine.std()) == pytest.approx(float(other.std()), rel=0.1)


def test_erasing_equals_torchvision(tiles):
    images, fill = tiles(), [10, 20, 30]
    u = rng.uniform(6, POSITIONS, 41)
    found = random_erasing(0.25, fill).apply(images, u)
    levels = torch.tensor(fill, dtype=torch.uint8).view(3, 1, 1)
    erased = u[:, 0] < 0.25
    assert 30 < erased.sum() < 100
    for i, box in enumerate(erased_boxes(u[:, 1:], 32, 32).tolist()):
        expected = tv.erase(images[i], *box, levels) if erased[i] else images[i]
        assert found[i].equal(expected)


@pytest.mark.parametrize("policy", [name for name in AUGMENTATIONS if name != "none"])
def test_erasing_comes_last_and_changes_no_other_number(policy, tiles):
    mean = (0.5, 0.25, 0.1)
    plain = create_augmentation(policy, size=32, mean=mean)
    erasing = create_augmentation(policy, size=32, mean=mean, erase=0.5)
    before, after = (augment(tiles(), 7, POSITIONS) for augment in (plain, erasing))
    u = rng.uniform(7, POSITIONS, sum(step.draws for step in erasing.steps))
    step = random_erasing(0.5, [128, 64, 26])
    assert after.equal(step.apply(before, u[:, -step.draws :]))
    assert 90 < (after != before).flatten(1).any(dim=1).sum() < 166


@pytest.mark.parametrize("policy", AUGMENTATIONS)
@pytest.mark.parametrize("kind", ["rgb", "grey", "large"])
def test_an_image_does_not_depend_on_its_neighbours(policy, kind, tiles, digits):
    images = {"rgb": tiles(), "grey": digits[0][:256], "large": tiles(112, 24)}[kind]
    channels, size = images.shape[1], images.shape[-1]
    augment = create_augmentation(policy, size=size, mean=[0.4] * channels, erase=0.5)
    key, positions = rng.stream(5), POSITIONS[: len(images)] + 1000
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
    u = rng.uniform(3, POSITIONS, 3)
    for image, found, (top, left, mirror) in zip(images, augmented, u, strict=True):
        expected = tv.crop(tv.pad(image, [4]), int(top * 9), int(left * 9), 32, 32)
        assert found.equal(tv.horizontal_flip(expected) if mirror < 0.5 else expected)
    assert len((u[:, 0] * 9).long().unique()) == 9


def test_options_switch_steps_off_and_scale_them(digits):
    pixels = digits[0][:256]
    shifted = create_augmentation("standard", size=8, flip=False)(pixels, 3, POSITIONS)
    u = rng.uniform(3, POSITIONS, 2)
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


def test_auto_augment_is_strong_without_cutout(tiles):
    found, strong = (
        create_augmentation(policy, size=32, **options)(tiles(), 7, POSITIONS)
        for policy, options in (("auto-augment", {}), ("strong", {"cutout": 0}))
    )
    assert found.equal(strong)
    assert not found.equal(create_augmentation("strong", size=32)(tiles(), 7, POSITIONS))


def test_large_images_are_cropped_by_the_loader_and_jittered():
    augment = create_augmentation("standard", size=224)
    assert augment.crop_scale == 0.08
    assert create_augmentation("trivial-augment", size=112, scale=0.35).crop_scale == 0.35
    assert create_augmentation("none", size=224).crop_scale is None
    assert create_augmentation("standard", size=32).crop_scale is None
    assert [step.draws for step in augment.steps] == [1, 4]  # flip, jitter


@pytest.mark.parametrize("hue", [0.0, 0.1])
def test_colour_jitter_equals_torchvision(hue, tiles):
    images = tiles(64, 96)
    step = colour_jitter(0.4, hue)
    u = rng.uniform(2, torch.arange(96), step.draws)
    found = step.apply(images, u)
    jitter = v2.ColorJitter(0.4, 0.4, 0.4, hue)
    orders = list(permutations(range(4 if hue else 3)))
    everything = []
    for image, numbers, result in zip(images, u, found, strict=True):
        change = (numbers[1:] * 2 - 1).tolist()
        names = ("brightness_factor", "contrast_factor", "saturation_factor")
        parameters = {n: 1 + 0.4 * c for n, c in zip(names, change, strict=False)}
        parameters["hue_factor"] = hue * change[3] if hue else None
        order = torch.tensor(orders[int(numbers[0] * len(orders))])
        expected = jitter.transform(image, {"fn_idx": order, **parameters})
        # One level off, times two later factors of up to 1.4; a hue moves with it.
        assert (result.int() - expected.int()).abs().max() <= (4 if hue else 3)
        everything.append(expected)
    assert share_off(found, torch.stack(everything)) < 0.01


def test_resized_crop_equals_torchvision(tiles):
    images = tiles()
    step = random_resized_crop((0.2, 1.0))
    u = rng.uniform(2, POSITIONS, step.draws)
    found = step.apply(images, u)
    boxes = crop_boxes(u, 32, 32, (0.2, 1.0))
    assert 0.2 * 1024 - 32 < (boxes[:, 2] * boxes[:, 3]).min() < 300
    assert (boxes[:, 2] * boxes[:, 3]).max() > 850
    for image, box, result in zip(images, boxes.tolist(), found, strict=True):
        expected = tv.resized_crop(image, *box, [32, 32], antialias=True)
        # Both are bilinear; torchvision's weights are rounded to fixed point.
        assert (result.int() - expected.int()).abs().max() <= 1


def test_grey_equals_torchvision(tiles):
    images, u = tiles(), rng.uniform(2, POSITIONS, 1)
    found = random_grey(0.2).apply(images, u)
    grey = u[:, 0] < 0.2
    assert found[~grey].equal(images[~grey])
    expected = tv.rgb_to_grayscale(images[grey], num_output_channels=3)
    assert (found[grey].int() - expected.int()).abs().max() <= 1
    assert share_off(found[grey], expected) < 0.01


@pytest.mark.parametrize("size", [32, 8, 4])
def test_blur_equals_torchvision(size, tiles):
    images, u = tiles(32)[..., :size, :size].contiguous(), rng.uniform(2, POSITIONS, 2)
    found = random_blur(0.5, strongest=2.0).apply(images, u)
    blurred = u[:, 0] < 0.5
    assert found[~blurred].equal(images[~blurred])
    kernel = 2 * min(6, size - 1) + 1
    expected = [
        tv.gaussian_blur(image, [kernel] * 2, [0.1 + 1.9 * float(number)] * 2)
        for image, number in zip(images[blurred], u[blurred, 1], strict=True)
    ]
    assert (found[blurred].int() - torch.stack(expected).int()).abs().max() <= 1
    assert share_off(found[blurred], torch.stack(expected)) < 0.001


def test_rotation_equals_torchvision(tiles):
    images, u = tiles(), rng.uniform(2, POSITIONS, 1)
    found = random_rotation(15.0).apply(images, u)
    angles = (u[:, 0].double() * 2 - 1) * 15
    expected = [tv.rotate(image, float(a)) for image, a in zip(images, angles, strict=True)]
    assert share_off(found, torch.stack(expected)) < 0.001
    assert angles.abs().max() > 14


def test_rotation_comes_after_the_policy_and_before_erasing(tiles):
    options = {"size": 32, "mean": (0.5, 0.25, 0.1)}
    plain, turned = (create_augmentation("strong", **options, rotation=r) for r in (0.0, 15.0))
    both = create_augmentation("strong", **options, rotation=15.0, erase=0.5)
    u = rng.uniform(7, POSITIONS, sum(step.draws for step in turned.steps))
    expected = random_rotation(15.0).apply(plain(tiles(), 7, POSITIONS), u[:, -1:])
    assert turned(tiles(), 7, POSITIONS).equal(expected)
    assert [step.draws for step in both.steps][-2:] == [1, 41]
    assert create_augmentation("none", size=32, rotation=15.0).steps == []


def test_crop_and_flip_changes_no_colour():
    """Below 112 pixels it is `standard`; from there on that has a jitter too."""
    draws = {
        (policy, size): [step.draws for step in create_augmentation(policy, size=size).steps]
        for policy in ("crop-and-flip", "standard")
        for size in (32, 224)
    }
    assert draws["crop-and-flip", 32] == draws["standard", 32] == [2, 1]
    assert draws["crop-and-flip", 224] == [1]
    assert draws["standard", 224] == [1, 4]
    assert create_augmentation("crop-and-flip", size=224).crop_scale == 0.08


@pytest.mark.parametrize(("size", "strongest"), [(8, 0.5), (32, 2.0), (112, 2.0)])
def test_moco_is_simclr_and_blur(size, strongest, tiles):
    images, positions = tiles(size, 24), POSITIONS[:24]
    simclr, moco = (create_augmentation(policy, size=size) for policy in ("simclr", "moco"))
    found = moco(images, 3, positions)
    u = rng.uniform(3, positions, sum(step.draws for step in moco.steps))
    expected = random_blur(0.5, strongest).apply(simclr(images, 3, positions), u[:, -2:])
    assert found.equal(expected)


@pytest.mark.parametrize(("policy", "smallest"), [("simclr", 0.2), ("proco", 0.08)])
def test_simclr_and_proco_are_crop_flip_jitter_and_grey(policy, smallest, tiles):
    augment = create_augmentation(policy, size=32)
    assert [step.draws for step in augment.steps] == [40, 1, 6, 1]
    still = create_augmentation(policy, size=32, flip=False)
    assert [step.draws for step in still.steps] == [40, 6, 1]
    large = create_augmentation(policy, size=112)
    assert large.crop_scale == 0.08
    assert [step.draws for step in large.steps] == [1, 6, 1]
    images = tiles()
    u = rng.uniform(3, POSITIONS, 48)
    expected = random_resized_crop((smallest, 1.0)).apply(images, u[:, :40])
    mirrored = u[:, 40] < 0.5
    expected[mirrored] = expected[mirrored].flip(-1)
    jittered = u[:, 46] < 0.8
    expected[jittered] = colour_jitter(0.4, 0.1).apply(expected, u[:, 41:46])[jittered]
    expected = random_grey(0.2).apply(expected, u[:, 47:])
    assert augment(images, 3, POSITIONS).equal(expected)


def test_simclr_changes_colours_as_often_as_it_says():
    """On images of one colour a crop and a flip change nothing."""
    count = 20_000
    colour = torch.tensor([200, 120, 40], dtype=torch.uint8).view(1, 3, 1, 1)
    images = colour.expand(count, 3, 4, 4).contiguous()
    found = create_augmentation("simclr", size=4)(images, 8, torch.arange(count))
    grey = (found == found[:, :1]).flatten(1).all(dim=1)
    same = (found == images).flatten(1).all(dim=1)
    for share, expected in ((grey, 0.2), (same, 0.2 * 0.8)):
        error = (expected * (1 - expected) / count) ** 0.5
        assert abs(share.double().mean() - expected) < 5 * error


def test_simclr_of_grey_images_is_crop_brightness_and_contrast(digits):
    images = digits[0][:256]
    u = rng.uniform(3, POSITIONS, 48)
    expected = []
    cropped = random_resized_crop((0.2, 1.0)).apply(images, u[:, :40])
    jitter = v2.ColorJitter(0.4, 0.4)
    for image, numbers in zip(cropped, u, strict=True):
        image = image.flip(-1) if numbers[40] < 0.5 else image
        if numbers[46] < 0.8:
            order = list(permutations(range(4)))[int(numbers[41] * 24)]
            factors = (1 + (numbers[42:44] * 2 - 1) * 0.4).tolist()
            names = ("brightness_factor", "contrast_factor")
            absent = {"saturation_factor": None, "hue_factor": None}
            parameters = dict(zip(names, factors, strict=True)) | absent
            image = jitter.transform(image, {"fn_idx": torch.tensor(order), **parameters})
        expected.append(image)
    found = create_augmentation("simclr", size=8)(images, 3, POSITIONS)
    assert (found.int() - torch.stack(expected).int()).abs().max() <= 2
    assert share_off(found, torch.stack(expected)) < 0.01


class OnTheDevice(TorchDispatchMode):
    """Refuses every operation that touches a tensor of the host."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        for tensor in tree_leaves((args, kwargs)):
            assert not isinstance(tensor, torch.Tensor) or tensor.is_cuda, operation
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [32, 112])
@pytest.mark.parametrize("policy", AUGMENTATIONS)
def test_nothing_waits_for_the_device(policy, size, channels):
    """Tensors that only claim to be on a GPU have no values to wait for: reading one fails."""
    augment = create_augmentation(policy, size=size, mean=[0.5] * channels, erase=0.5)
    with FakeTensorMode(allow_non_fake_inputs=True):
        images = torch.empty(16, channels, size, size, dtype=torch.uint8, device="cuda")
        positions = torch.empty(16, dtype=torch.int64, device="cuda")
        key = torch.empty((), dtype=torch.int64, device="cuda")
        augment(images, key, positions)  # copies its tables
        with OnTheDevice():
            for k in (5, key):
                result = augment(images, k, positions)
                assert (result.shape, result.dtype) == (images.shape, torch.uint8)


@pytest.mark.parametrize("key", [0, 5, rng.stream(3, 1, 4), 2**63 - 1])
def test_a_key_may_be_a_tensor(key, tiles):
    augment = create_augmentation("strong", size=32, mean=[0.5] * 3)
    found = augment(tiles(), torch.tensor(key), POSITIONS)
    assert found.equal(augment(tiles(), key, POSITIONS))


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
        ("simclr", {"padding": 4}, "padding"),
        ("moco", {"padding": 4}, "padding"),
        ("standard", {"rotation": -5.0}, "rotation is -5.0"),
        ("standard", {"erase": 1.5}, "erase is 1.5"),
        ("standard", {"scale": 0.0}, "scale is 0.0"),
        ("standard", {"scale": 1.2}, "scale is 1.2"),
    ],
)
def test_bad_input_is_named(policy, options, message):
    with pytest.raises(InputError, match=message):
        create_augmentation(policy, size=32, **options)


def test_a_constant_is_copied_once():
    constant = on_devices(torch.arange(3))
    there = constant(torch.device("meta"))
    assert there.device.type == "meta"
    assert constant(torch.device("meta")) is there
    assert constant(torch.device("cpu")).tolist() == [0, 1, 2]

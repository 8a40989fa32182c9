"""Augmentation policies for batches of uint8 images on any device.

An image's random numbers come from (key, position) alone: neighbours in the batch, workers, ranks
and a resume change nothing. With images and positions on a GPU nothing waits for it, and a CUDA
graph can hold the whole; the first call on a device copies the tables there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from wcdas import rng
from wcdas.checks import check_from_zero, check_positive, check_probability, create
from wcdas.data.steps import (
    Step,
    auto_augment,
    colour_jitter,
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

RESIZED_CROP_FROM = 112  # from this side length on, training crops are RandomResizedCrop
BLUR = 2.0  # pixels


@dataclass(frozen=True)
class Augmentation:
    """`augmentation(images (B, C, H, W) uint8, key, positions (B,))` → the same shape and type.

    The key is a number, or a tensor () int64 on the images' device.
    With a `crop_scale` the loader is to cut a RandomResizedCrop out of the image first, of this
    share of the area at least.
    """

    steps: Sequence[Step]
    crop_scale: float | None

    def __call__(self, images: Tensor, key: int | Tensor, positions: Tensor) -> Tensor:
        if not self.steps:
            return images
        draws = [step.draws for step in self.steps]
        u = rng.uniform(key, positions.to(images.device), sum(draws))
        for step, numbers in zip(self.steps, u.split(draws, dim=1), strict=True):
            images = step.apply(images, numbers)
        return images


def none(size: int) -> list[Step]:
    """The images as they are."""
    return []


def crop_and_flip(size: int, flip: bool = True, padding: int | None = None) -> list[Step]:
    """Random crop out of the image padded by an eighth, and a flip.

    From 112 pixels on RandomResizedCrop and a flip.
    """
    if padding is None:
        padding = 0 if size >= RESIZED_CROP_FROM else max(1, size // 8)
    if not 0 <= padding <= size:
        raise InputError(f"padding is {padding}; expected 0 (off) to {size} pixels")
    crop = [random_crop(padding)] if padding else []
    return [*crop, random_flip()] if flip else crop


def standard(
    size: int, flip: bool = True, padding: int | None = None, jitter: float | None = None
) -> list[Step]:
    """Random crop and flip; from 112 pixels on colour jitter too.

    That changes brightness, contrast and saturation by up to 40 %.
    """
    jitter = (0.4 if size >= RESIZED_CROP_FROM else 0.0) if jitter is None else jitter
    steps = crop_and_flip(size, flip, padding)
    if not 0 <= jitter < 1:
        raise InputError(f"jitter is {jitter}; expected a number of at least 0 and below 1")
    return [*steps, colour_jitter(jitter)] if jitter else steps


def auto(size: int, flip: bool = True, padding: int | None = None) -> list[Step]:
    """AutoAugment's CIFAR-10 policy, random crop, flip: `strong` without Cutout."""
    return [auto_augment(size), *crop_and_flip(size, flip, padding)]


def strong(
    size: int,
    flip: bool = True,
    padding: int | None = None,
    cutout: int | None = None,
    mean: Sequence[float] = (0.0,),
) -> list[Step]:
    """AutoAugment's CIFAR-10 policy, random crop, flip, Cutout of half the side length.

    Cutout covers with `mean`, the channels' means in 0 … 1, so that it is zero once normalised.
    """
    cutout = size // 2 if cutout is None else cutout
    if not 0 <= cutout <= 2 * size:
        raise InputError(f"cutout is {cutout}; expected 0 (off) to {2 * size} pixels")
    steps = auto(size, flip, padding)
    return [*steps, random_cutout(cutout, levels(mean))] if cutout else steps


def rand(
    size: int, flip: bool = True, padding: int | None = None, num_ops: int = 2, magnitude: int = 9
) -> list[Step]:
    """RandAugment (two operations, magnitude 9 of 31), random crop, flip."""
    if num_ops < 1 or not 0 <= magnitude <= 30:
        raise InputError(
            f"RandAugment with num_ops {num_ops} and magnitude {magnitude}; "
            "expected at least 1 and a magnitude from 0 to 30"
        )
    return [rand_augment(size, num_ops, magnitude), *crop_and_flip(size, flip, padding)]


def trivial(size: int, flip: bool = True, padding: int | None = None) -> list[Step]:
    """TrivialAugment (wide: one operation at any magnitude), random crop, flip."""
    return [trivial_augment(size), *crop_and_flip(size, flip, padding)]


def simclr(size: int, flip: bool = True, smallest: float = 0.2) -> list[Step]:
    """For contrastive methods: RandomResizedCrop, flip, strong colour jitter, grey.

    A crop of 20 % of the area, or what `smallest` says, to 100 % (from 112 pixels on the loader's).
    Four of five images get brightness, contrast and saturation changed by up to 40 % and the hue by
    up to a tenth of the circle, one of five becomes grey. One-channel images have no hue to change.
    T. Chen, S. Kornblith, M. Norouzi, G. Hinton, 2020, arXiv:2002.05709.
    """
    crop = [] if size >= RESIZED_CROP_FROM else [random_resized_crop(scale=(smallest, 1.0))]
    flips = [random_flip()] if flip else []
    jitter = colour_jitter(0.4, hue=0.1, probability=0.8)
    return [*crop, *flips, jitter, random_grey(0.2)]


def moco(size: int, flip: bool = True) -> list[Step]:
    """For contrastive methods: simclr, and half of the images blurred.

    By a Gaussian of 0.1 to 2 pixels, or of a 320th to a 16th of the side where that is less.
    X. Chen, H. Fan, R. Girshick, K. He, 2020, arXiv:2003.04297.
    """
    return [*simclr(size, flip), random_blur(0.5, strongest=min(BLUR, size / 16))]


def proco(size: int, flip: bool = True) -> list[Step]:
    """For contrastive methods: simclr with crops of 8 to 100 % of the area at every size.

    C. Du, Y. Wang, S. Song, G. Huang, 2024, arXiv:2403.06726, after their public code.
    """
    return simclr(size, flip, smallest=0.08)


AUGMENTATIONS: dict[str, Callable[..., list[Step]]] = {
    "none": none,
    "crop-and-flip": crop_and_flip,
    "standard": standard,
    "strong": strong,
    "auto-augment": auto,
    "rand-augment": rand,
    "trivial-augment": trivial,
    "simclr": simclr,
    "moco": moco,
    "proco": proco,
}


def create_augmentation(
    policy: str,
    *,
    size: int,
    flip: bool = True,
    rotation: float = 0.0,
    erase: float = 0.0,
    scale: float = 0.08,
    mean: Sequence[float] = (0.0,),
    **options: Any,
) -> Augmentation:
    """Build a policy by name.

    Args:
        policy: a name of `AUGMENTATIONS`.
        size: the side length of the images.
        flip: mirror half of them.
        rotation: the largest angle of a random rotation in degrees.
        erase: the probability of random erasing, which comes last and covers with `mean`.
        scale: the smallest share of the area that RandomResizedCrop takes, from 112 pixels on.
        mean: the channels' means in 0 … 1: what is covered with them is zero once normalised.
        options: `padding` (all but "none", "simclr", "moco" and "proco"), `jitter` ("standard"),
            `cutout` ("strong"), `num_ops` and `magnitude` ("rand-augment"), `smallest` ("simclr").

    >>> augment = create_augmentation("standard", size=8, flip=False)
    >>> augment(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 1, torch.arange(2)).shape
    torch.Size([2, 1, 8, 8])
    """
    if size < 1:
        raise InputError(f"image size is {size}; expected at least 1")
    check_from_zero("rotation", rotation)
    check_probability("erase", erase)
    check_positive("scale", scale, at_most=1)
    steps = create("augmentation", AUGMENTATIONS, policy, options, size=size, flip=flip, mean=mean)
    if policy == "none":
        return Augmentation(steps, crop_scale=None)
    if rotation:
        steps = [*steps, random_rotation(rotation)]
    if erase:
        steps = [*steps, random_erasing(erase, levels(mean))]
    return Augmentation(steps, scale if size >= RESIZED_CROP_FROM else None)


def levels(mean: Sequence[float]) -> list[int]:
    return [round(m * 255) for m in mean]

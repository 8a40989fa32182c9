"""Augmentation policies for batches of uint8 images on any device.

An image's random numbers come from (key, position) alone: neighbours in the batch, workers, ranks
and a resume change nothing.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import Any, Protocol

import torch
from torch import Tensor

from wcdas import names
from wcdas.data import operations, random
from wcdas.data.autoaugment import NAMES, AutoAugment, RandAugment, apply_operations
from wcdas.errors import InputError

RESIZED_CROP_FROM = 112  # from this side length on, training crops are RandomResizedCrop


class Step(Protocol):
    """A random operation that takes `draws` numbers in [0, 1) for every image, u (B, draws)."""

    @property
    def draws(self) -> int: ...

    def __call__(self, images: Tensor, u: Tensor) -> Tensor: ...


class Augmentation:
    """`augmentation(images (B, C, H, W) uint8, key, positions (B,))` → the same shape and type.

    `resized_crop` says that the loader is to cut a RandomResizedCrop out of the image first.
    A policy names its steps, each a function of the images and of its own random numbers (B, d).
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise InputError(f"image size is {size}; expected at least 1")
        self.size = size
        self.resized_crop = False
        self.steps: list[Step] = []

    def __call__(self, images: Tensor, key: int, positions: Tensor) -> Tensor:
        if not self.steps:
            return images
        draws = sum(step.draws for step in self.steps)
        u = random.uniform(key, positions.to(images.device), draws)
        for step, numbers in zip(
            self.steps, u.split([step.draws for step in self.steps], dim=1), strict=True
        ):
            images = step(images, numbers)
        return images


class NoAugmentation(Augmentation):
    """The images as they are."""


class StandardAugmentation(Augmentation):
    """Random crop out of the image padded by an eighth, and a flip.

    From 112 pixels on RandomResizedCrop, a flip and colour jitter (brightness, contrast and
    saturation by up to 40 %).
    """

    def __init__(
        self, size: int, flip: bool = True, padding: int | None = None, jitter: float | None = None
    ) -> None:
        super().__init__(size)
        self.resized_crop = size >= RESIZED_CROP_FROM
        self.steps += crop_and_flip(size, padding, flip)
        jitter = (0.4 if self.resized_crop else 0.0) if jitter is None else jitter
        if not 0 <= jitter < 1:
            raise InputError(f"jitter is {jitter}; expected a number of at least 0 and below 1")
        if jitter:
            self.steps.append(ColourJitter(jitter))


class StrongAugmentation(Augmentation):
    """AutoAugment's CIFAR-10 policy, random crop, flip, Cutout of half the side length.

    Cutout covers with `mean`, the channels' means in 0 … 1, so that it is zero once normalised.
    """

    def __init__(
        self,
        size: int,
        flip: bool = True,
        padding: int | None = None,
        cutout: int | None = None,
        mean: Sequence[float] = (0.0,),
    ) -> None:
        super().__init__(size)
        self.resized_crop = size >= RESIZED_CROP_FROM
        cutout = size // 2 if cutout is None else cutout
        if not 0 <= cutout <= 2 * size:
            raise InputError(f"cutout is {cutout}; expected 0 (off) to {2 * size} pixels")
        self.steps += [AutoAugment(size), *crop_and_flip(size, padding, flip)]
        if cutout:
            self.steps.append(Cutout(cutout, [round(m * 255) for m in mean]))


class RandAugmentation(Augmentation):
    """RandAugment (two operations, magnitude 9 of 31), random crop, flip."""

    def __init__(
        self,
        size: int,
        flip: bool = True,
        padding: int | None = None,
        num_ops: int = 2,
        magnitude: int = 9,
    ) -> None:
        super().__init__(size)
        if num_ops < 1 or not 0 <= magnitude <= 30:
            raise InputError(
                f"RandAugment with num_ops {num_ops} and magnitude {magnitude}; "
                "expected at least 1 and a magnitude from 0 to 30"
            )
        self.resized_crop = size >= RESIZED_CROP_FROM
        self.steps += [RandAugment(size, num_ops, magnitude), *crop_and_flip(size, padding, flip)]


class Crop:
    """The original size, cut at random out of the image padded with zeros."""

    draws = 2

    def __init__(self, padding: int) -> None:
        self.padding = padding

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        top, left = (u * (2 * self.padding + 1)).long().unbind(1)
        return operations.crop(images, top, left, self.padding)


class Flip:
    """A mirror image half of the time."""

    draws = 1

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        return operations.horizontal_flip(images, u[:, 0] < 0.5)


class Cutout:
    """A square round a random pixel, covered with `fill`, a level for each channel."""

    draws = 2

    def __init__(self, length: int, fill: Sequence[int]) -> None:
        self.length, self.fill = length, fill

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        y, x = (u * images.shape[-1]).long().unbind(1)
        return operations.cutout(images, y, x, self.length, self.fill)


class ColourJitter:
    """Brightness, contrast and saturation, each times 1 − strength … 1 + strength, in any order."""

    draws = 4

    def __init__(self, strength: float) -> None:
        self.strength = strength
        kinds = [NAMES.index(name) for name in ("Brightness", "Contrast", "Color")]
        self.orders = torch.tensor(list(permutations(range(3))))
        self.operation = torch.tensor(kinds)

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        self.orders = self.orders.to(u.device)
        self.operation = self.operation.to(u.device)
        order = self.orders[(u[:, 0] * len(self.orders)).long()]
        change = (u[:, 1:] * 2 - 1) * self.strength
        for turn in order.T:
            amount = change.gather(1, turn[:, None])[:, 0]
            images = apply_operations(images, self.operation[turn], amount.double())
        return images


def crop_and_flip(size: int, padding: int | None, flip: bool) -> list[Step]:
    if padding is None:
        padding = 0 if size >= RESIZED_CROP_FROM else max(1, size // 8)
    if not 0 <= padding <= size:
        raise InputError(f"padding is {padding}; expected 0 (off) to {size} pixels")
    steps: list[Step] = [Crop(padding)] if padding else []
    return [*steps, Flip()] if flip else steps


AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "none": NoAugmentation,
    "standard": StandardAugmentation,
    "strong": StrongAugmentation,
    "rand-augment": RandAugmentation,
}


def create_augmentation(
    policy: str, *, size: int, flip: bool = True, mean: Sequence[float] = (0.0,), **options: Any
) -> Augmentation:
    """Build a policy by name; `flip` and `mean` go to those that use them.

    Options: `padding` (all but "none"), `jitter` ("standard"), `cutout` ("strong"), `num_ops` and
    `magnitude` ("rand-augment").

    >>> augment = create_augmentation("standard", size=8, flip=False)
    >>> augment(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 1, torch.arange(2)).shape
    torch.Size([2, 1, 8, 8])
    """
    context = {"size": size, "flip": flip, "mean": mean}
    try:
        return names.create("augmentation", AUGMENTATIONS, policy, options, **context)
    except ValueError as error:
        raise InputError(str(error)) from None


def list_augmentations() -> list[str]:
    """The names that `create_augmentation` knows."""
    return list(AUGMENTATIONS)

"""The random steps that augmentation policies are made of."""

from collections.abc import Sequence
from itertools import permutations
from typing import Protocol

import torch
from torch import Tensor

from wcdas.data import operations
from wcdas.data.changes import Constant, apply_changes


class Step(Protocol):
    """A random operation that takes `draws` numbers in [0, 1) for every image, u (B, draws)."""

    @property
    def draws(self) -> int: ...

    def __call__(self, images: Tensor, u: Tensor) -> Tensor: ...


class Crop:
    """The original size, cut at random out of the image padded with zeros."""

    draws = 2

    def __init__(self, padding: int) -> None:
        self.padding = padding

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        top, left = (u * (2 * self.padding + 1)).long().unbind(1)
        return operations.crop(images, top, left, self.padding)


class ResizedCrop:
    """A random box, its area a share of the image within `scale`, enlarged to the original size."""

    draws = 4 * operations.TRIES

    def __init__(self, scale: tuple[float, float]) -> None:
        self.scale = scale

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        boxes = operations.crop_boxes(u, height, width, self.scale)
        return operations.resized_crop(images, boxes, width)


class Flip:
    """A mirror image half of the time."""

    draws = 1

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        return operations.horizontal_flip(images, u[:, 0] < 0.5)


class Cutout:
    """A square round a random pixel, covered with `fill`, a level for each channel."""

    draws = 2

    def __init__(self, length: int, fill: Sequence[int]) -> None:
        self.length, self.fill = length, Constant(torch.tensor(fill, dtype=torch.uint8))

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        y, x = (u * images.shape[-1]).long().unbind(1)
        return operations.cutout(images, y, x, self.length, self.fill.on(images.device))


class ColourJitter:
    """Brightness, contrast and saturation, each times 1 − strength … 1 + strength, in any order.

    With `hue` that too, turned by up to this share of the circle either way. Each image is changed
    with the `probability`.
    """

    def __init__(self, strength: float, hue: float = 0.0, probability: float = 1.0) -> None:
        reach = [strength] * 3 + [hue] * (hue > 0)
        self.hue, self.probability = hue, probability
        self.draws = 1 + len(reach) + (probability < 1)
        self.reach = Constant(torch.tensor(reach))
        self.orders = Constant(torch.tensor(list(permutations(range(len(reach))))))
        # Weights of the image, its grey version and its mean level; turn of the hue.
        self.neutral = Constant(torch.tensor((1.0, 0, 0, 0)))
        slope = ((1.0, 0, 0, 0), (1, 0, -1, 0), (1, -1, 0, 0), (0, 0, 0, 1))
        self.slope = Constant(torch.tensor(slope))

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        reach, orders, neutral, slope = (
            constant.on(u.device)
            for constant in (self.reach, self.orders, self.neutral, self.slope)
        )
        order = orders[(u[:, 0] * len(orders)).long()]
        change = (u[:, 1 : 1 + len(reach)] * 2 - 1) * reach
        if self.probability < 1:
            change = change * (u[:, -1:] < self.probability)
        parameters = neutral + slope[order] * change.gather(1, order)[..., None]
        for turn in parameters.unbind(1):
            blend, hue = turn.split((3, 1), dim=1)
            changes = {"blend": blend, "hue": hue} if self.hue else {"blend": blend}
            images = apply_changes(images, changes)
        return images


class Grey:
    """The grey version of the image, with a probability."""

    draws = 1

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        grey = (u < self.probability).float()
        weights = torch.cat((1 - grey, grey, torch.zeros_like(grey)), dim=1)
        return apply_changes(images, {"blend": weights})

"""The random steps that policies are made of: crops, flips, colours, AutoAugment and its kin."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as nn
from torchvision.transforms import AutoAugment, AutoAugmentPolicy

from wcdas.data.operations import (
    KINDS,
    TRIES,
    apply_changes,
    crop_boxes,
    erased_boxes,
    resized_crop,
)

Change = tuple[str, tuple[float, ...]]  # a kind of operation and its parameters


class Step(NamedTuple):
    """A random change of images (B, C, H, W) by numbers in [0, 1), (B, draws)."""

    draws: int
    apply: Callable[[Tensor, Tensor], Tensor]


def random_crop(padding: int) -> Step:
    """The original size, cut at random out of the image padded with zeros."""

    def apply(images: Tensor, u: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        top, left = (u * (2 * padding + 1)).long().unbind(1)
        windows = nn.pad(images, [padding] * 4).unfold(2, height, 1).unfold(3, width, 1)
        return windows[torch.arange(len(images), device=images.device), :, top, left]

    return Step(2, apply)


def random_resized_crop(scale: tuple[float, float]) -> Step:
    """A random box, its area a share of the image within `scale`, enlarged to the original size."""

    def apply(images: Tensor, u: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        return resized_crop(images, crop_boxes(u, height, width, scale), width)

    return Step(4 * TRIES, apply)


def random_flip() -> Step:
    """A mirror image half of the time."""
    return Step(1, lambda images, u: torch.where(u[..., None, None] < 0.5, images.flip(-1), images))


def random_cutout(length: int, fill: Sequence[int]) -> Step:
    """A square round a random pixel, clipped at the border, covered with a level for each channel.

    T. DeVries, G. Taylor, 2017, arXiv:1708.04552.
    """
    levels = on_devices(torch.tensor(fill, dtype=torch.uint8).view(-1, 1, 1))

    def apply(images: Tensor, u: Tensor) -> Tensor:
        start = (u * images.shape[-1]).long() - length // 2
        return cover(images, torch.cat((start, torch.full_like(start, length)), 1), levels)

    return Step(2, apply)


def random_erasing(probability: float, fill: Sequence[int]) -> Step:
    """With a probability a random box, covered with a level for each channel.

    Z. Zhong, L. Zheng, G. Kang, S. Li, Y. Yang, 2017, arXiv:1708.04896.
    """
    levels = on_devices(torch.tensor(fill, dtype=torch.uint8).view(-1, 1, 1))

    def apply(images: Tensor, u: Tensor) -> Tensor:
        act, numbers = u[:, :1], u[:, 1:]
        return cover(
            images, erased_boxes(numbers, *images.shape[-2:]) * (act < probability), levels
        )

    return Step(1 + 4 * TRIES, apply)


def cover(images: Tensor, boxes: Tensor, levels: "OnDevices") -> Tensor:
    """Cover boxes (top, left, height, width), (B, 4), with levels (C, 1, 1)."""
    top, left, height, width = boxes[..., None].unbind(1)
    y, x = (torch.arange(side, device=images.device) for side in images.shape[-2:])
    rows, columns = (y >= top) & (y < top + height), (x >= left) & (x < left + width)
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(inside, levels(images.device), images)


def colour_jitter(strength: float, hue: float = 0.0, probability: float = 1.0) -> Step:
    """Brightness, contrast and saturation, each times 1 − strength … 1 + strength, in any order.

    With `hue` that too, turned by up to this share of the circle either way. Each image is changed
    with the `probability`.
    """
    n = 4 if hue else 3
    reach = on_devices(torch.tensor([strength, strength, strength, hue][:n]))
    orders = on_devices(torch.tensor(list(permutations(range(n)))))
    # Weights of the image, its grey version and its mean level; turn of the hue.
    neutral = on_devices(torch.tensor((1.0, 0, 0, 0)))
    slope = on_devices(torch.tensor(((1.0, 0, 0, 0), (1, 0, -1, 0), (1, -1, 0, 0), (0, 0, 0, 1))))

    def apply(images: Tensor, u: Tensor) -> Tensor:
        order = orders(u.device)[(u[:, 0] * math.factorial(n)).long()]
        change = (u[:, 1 : 1 + n] * 2 - 1) * reach(u.device)
        if probability < 1:
            change = change * (u[:, -1:] < probability)
        slopes = slope(u.device)[order]
        parameters = neutral(u.device) + slopes * change.gather(1, order)[..., None]
        for turn in parameters.unbind(1):
            blend, turned = turn.split((3, 1), dim=1)
            images = apply_changes(images, {"blend": blend} | ({"hue": turned} if hue else {}))
        return images

    return Step(1 + n + (probability < 1), apply)


def random_grey(probability: float) -> Step:
    """The grey version of the image, with a probability."""

    def apply(images: Tensor, u: Tensor) -> Tensor:
        grey = (u < probability).float()
        weights = torch.cat((1 - grey, grey, torch.zeros_like(grey)), dim=1)
        return apply_changes(images, {"blend": weights})

    return Step(1, apply)


def random_blur(probability: float, strongest: float) -> Step:
    """A Gaussian blur, with a probability; σ is up to `strongest` pixels, a twentieth at least."""

    def apply(images: Tensor, u: Tensor) -> Tensor:
        act, number = u.split(1, dim=1)
        sigma = strongest * (0.05 + 0.95 * number) * (act < probability)
        return apply_changes(images, {"blur": sigma})

    return Step(2, apply)


def random_rotation(degrees: float) -> Step:
    """Turned by up to so many degrees either way; what comes from outside is black."""

    def apply(images: Tensor, u: Tensor) -> Tensor:
        angle = (u.double() * 2 - 1) * math.radians(degrees)
        cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
        return apply_changes(images, {"affine": torch.cat((cos, -sin, none, sin, cos, none), 1)})

    return Step(1, apply)


OnDevices = Callable[[torch.device], Tensor]


def on_devices(value: Tensor) -> OnDevices:
    """Return the tensor by device; it is copied once to every one where it is asked for."""
    return cache(value.to)


def auto_augment(size: int) -> Step:
    """AutoAugment's CIFAR-10 policy: one of 25 pairs of operations for each image.

    The numbers decide the pair, then for each of its operations whether it is applied and its sign.
    E. Cubuk, B. Zoph, D. Mané, V. Vasudevan, Q. Le, 2019, arXiv:1805.09501. Magnitudes, signs and
    operations are those of torchvision's class of the same name, as in RandAugment below.
    """
    turns = [
        (
            on_devices(torch.tensor([probability for _, probability, _ in column])),
            Choices([(name, magnitude_of(name, bin_, 10, size)) for name, _, bin_ in column], size),
        )
        for column in zip(*CIFAR10_POLICY, strict=True)
    ]

    def apply(images: Tensor, u: Tensor) -> Tensor:
        pair = (u[:, 0] * len(CIFAR10_POLICY)).long()
        for (probability, choices), (act, sign) in zip(turns, u[:, 1:].T.split(2), strict=True):
            applied = act < probability(u.device)[pair]
            images = apply_changes(images, choices.changes(pair, sign, applied))
        return images

    return Step(5, apply)


def rand_augment(size: int, num_ops: int = 2, magnitude: int = 9) -> Step:
    """Operations drawn evenly for each image, all at one magnitude of 31.

    The numbers decide, for each turn, the operation and its sign.
    E. Cubuk, B. Zoph, J. Shlens, Q. Le, 2020, arXiv:1909.13719.
    """
    rows = [(name, magnitude_of(name, magnitude, 31, size)) for name in RAND_AUGMENT]
    choices = Choices(rows, size)

    def apply(images: Tensor, u: Tensor) -> Tensor:
        for choice, sign in zip(u[:, ::2].T, u[:, 1::2].T, strict=True):
            images = apply_changes(images, choices.changes((choice * len(rows)).long(), sign))
        return images

    return Step(2 * num_ops, apply)


def trivial_augment(size: int) -> Step:
    """One operation drawn evenly for each image, at one of 31 magnitudes of a wide range.

    The numbers decide the operation, the magnitude and its sign.
    S. Müller, F. Hutter, 2021, arXiv:2103.10158.
    """
    bins = range(31)
    rows = [(name, magnitude_of(name, b, 31, size, WIDE)) for name in RAND_AUGMENT for b in bins]
    choices = Choices(rows, size)

    def apply(images: Tensor, u: Tensor) -> Tensor:
        operation = (u[:, 0] * len(RAND_AUGMENT)).long()
        row = operation * len(bins) + (u[:, 1] * len(bins)).long()
        return apply_changes(images, choices.changes(row, u[:, 2]))

    return Step(3, apply)


class Choices:
    """Operations (name, magnitude) as parameters of all kinds that occur among them.

    Those of an operation are neutral in every kind but its own.
    """

    def __init__(self, rows: Sequence[tuple[str, float]], size: int) -> None:
        drawn: list[Change] = [IDENTITY]
        for name, m in rows:
            other = -m if name in SIGNED else m
            drawn += [OPERATIONS[name](m, size), OPERATIONS[name](other, size)]
        occurring = {kind for kind, _ in drawn}
        self.widths = {k: len(KINDS[k].neutral) for k in KINDS if k in occurring}
        parameters = [
            [x for k in self.widths for x in (values if k == kind else KINDS[k].neutral)]
            for kind, values in drawn
        ]
        self.parameters = on_devices(torch.tensor(parameters, dtype=torch.float32))

    def changes(self, row: Tensor, sign: Tensor, applied: Tensor | int = 1) -> dict[str, Tensor]:
        """Return parameters (B, n) of each kind; half of the signs turn a magnitude negative."""
        entry = (row * 2 + (sign < 0.5) + 1) * applied
        parameters = self.parameters(row.device)[entry]
        return dict(zip(self.widths, parameters.split([*self.widths.values()], 1), strict=True))


class Reach(NamedTuple):
    """The largest magnitudes of operations; `translate` in pixels by side length."""

    shear: float
    translate: Callable[[int], float]
    rotate: float
    colour: float
    posterize: int


USUAL = Reach(0.3, lambda size: 150.0 / 331.0 * size, 30.0, 0.9, 4)
WIDE = Reach(0.99, lambda size: 32.0, 135.0, 0.99, 6)


def magnitude_of(name: str, bin_: int | None, bins: int, size: int, reach: Reach = USUAL) -> float:
    """Return the size of an operation in one of its bins, as torchvision spaces them."""
    if name in ("Identity", "AutoContrast", "Equalize", "Invert") or bin_ is None:
        return 0.0
    if name == "Posterize":
        return float((8 - torch.arange(bins) / ((bins - 1) / reach.posterize)).round()[bin_])
    start, end = {
        "ShearX": (0.0, reach.shear),
        "ShearY": (0.0, reach.shear),
        "TranslateX": (0.0, reach.translate(size)),
        "TranslateY": (0.0, reach.translate(size)),
        "Rotate": (0.0, reach.rotate),
        "Solarize": (1.0, 0.0),
    }.get(name, (0.0, reach.colour))
    return float(torch.linspace(start, end, bins)[bin_])


def rotation(degrees: float) -> Change:
    angle = -math.radians(degrees % 360)
    cos, sin = math.cos(angle), math.sin(angle)
    return "affine", (cos, sin, 0, -sin, cos, 0)


IDENTITY = ("affine", (1, 0, 0, 0, 1, 0))

# What an operation does at magnitude m to images of side length s; in a shear the first row stays.
OPERATIONS: dict[str, Callable[[float, int], Change]] = {
    "Identity": lambda m, s: IDENTITY,
    "ShearX": lambda m, s: ("affine", (1, m, m * (s / 2), 0, 1, 0)),
    "ShearY": lambda m, s: ("affine", (1, 0, 0, m, 1, m * (s / 2))),
    "TranslateX": lambda m, s: ("affine", (1, 0, -math.trunc(m), 0, 1, 0)),
    "TranslateY": lambda m, s: ("affine", (1, 0, 0, 0, 1, -math.trunc(m))),
    "Rotate": lambda m, s: rotation(m),
    "Brightness": lambda m, s: ("blend", (1 + m, 0, 0)),
    "Color": lambda m, s: ("blend", (1 + m, -m, 0)),
    "Contrast": lambda m, s: ("blend", (1 + m, 0, -m)),
    "Sharpness": lambda m, s: ("sharpness", (-m,)),
    "Posterize": lambda m, s: ("posterize", (256 - 2 ** (8 - int(m)),)),
    "Solarize": lambda m, s: ("solarize", (255 * m,)),
    "AutoContrast": lambda m, s: ("autocontrast", (1,)),
    "Equalize": lambda m, s: ("equalize", (1,)),
    "Invert": lambda m, s: ("solarize", (0,)),
}
SIGNED = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"}
SIGNED |= {"Brightness", "Color", "Contrast", "Sharpness"}
RAND_AUGMENT = [name for name in OPERATIONS if name != "Invert"]
CIFAR10_POLICY = AutoAugment(AutoAugmentPolicy.CIFAR10).policies

"""AutoAugment and RandAugment, drawn for every image of a batch by itself.

E. Cubuk, B. Zoph, D. Mané, V. Vasudevan, Q. Le, 2019, arXiv:1805.09501 (the policy found on
CIFAR-10); E. Cubuk, B. Zoph, J. Shlens, Q. Le, 2020, arXiv:1909.13719. Magnitudes, signs and
operations are those of torchvision's classes of the same names.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from wcdas.data import operations

Choice = tuple[str, float, int | None]  # operation, probability, magnitude bin

CIFAR10_POLICY: list[tuple[Choice, Choice]] = [
    (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
    (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
    (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
    (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
    (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
    (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
    (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
    (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
    (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
    (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
    (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
    (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
    (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
    (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
    (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
    (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
    (("Color", 0.9, 9), ("Equalize", 0.6, None)),
    (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
    (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
    (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
    (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
    (("Equalize", 0.8, None), ("Invert", 0.1, None)),
    (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
]

# Affine operations give a matrix, so that all of them are one transform.
AFFINE: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "ShearX": operations.shear_x_matrix,
    "ShearY": operations.shear_y_matrix,
    "TranslateX": operations.translate_x_matrix,
    "TranslateY": operations.translate_y_matrix,
    "Rotate": operations.rotate_matrix,
}
COLOUR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Brightness": lambda images, m: operations.brightness(images, 1 + m),
    "Color": lambda images, m: operations.saturation(images, 1 + m),
    "Contrast": lambda images, m: operations.contrast(images, 1 + m),
    "Sharpness": lambda images, m: operations.sharpness(images, 1 + m),
    "Posterize": operations.posterize,
    "Solarize": lambda images, m: operations.solarize(images, 255 * m),
    "AutoContrast": lambda images, m: operations.autocontrast(images),
    "Equalize": lambda images, m: operations.equalize(images),
    "Invert": lambda images, m: operations.invert(images),
}
NAMES = ["Identity", *AFFINE, *COLOUR]
SIGNED = {*AFFINE, "Brightness", "Color", "Contrast", "Sharpness"}
RAND_AUGMENT = [name for name in NAMES if name != "Invert"]


def magnitude(name: str, bin_: int | None, bins: int, size: int) -> float:
    """The size of an operation in one of its bins, as torchvision spaces them."""
    if name in ("Identity", "AutoContrast", "Equalize", "Invert") or bin_ is None:
        return 0.0
    if name == "Posterize":
        return float((8 - torch.arange(bins) / ((bins - 1) / 4)).round()[bin_])
    start, end = {
        "ShearX": (0.0, 0.3),
        "ShearY": (0.0, 0.3),
        "TranslateX": (0.0, 150.0 / 331.0 * size),
        "TranslateY": (0.0, 150.0 / 331.0 * size),
        "Rotate": (0.0, 30.0),
        "Solarize": (1.0, 0.0),
    }.get(name, (0.0, 0.9))
    return float(torch.linspace(start, end, bins)[bin_])


class AutoAugment:
    """The CIFAR-10 policy: one of 25 pairs of operations for each image.

    `__call__(images, u)` takes the numbers in [0, 1) that decide, (B, 5): the pair, then for each
    of its operations whether it is applied and its sign.
    """

    draws = 5

    def __init__(self, size: int) -> None:
        table = CIFAR10_POLICY
        self.probability = torch.tensor([[p for _, p, _ in row] for row in table])
        self.steps = [
            _Table([(name, magnitude(name, bin_, 10, size)) for name, _, bin_ in column])
            for column in zip(*table, strict=True)
        ]

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        self.probability = self.probability.to(u.device)
        pair = (u[:, 0] * len(CIFAR10_POLICY)).long()
        for step, table in enumerate(self.steps):
            operation, m = table.lookup(pair, sign=u[:, 2 + 2 * step])
            applied = u[:, 1 + 2 * step] < self.probability[pair, step]
            images = apply_operations(images, operation * applied, m)
        return images


class RandAugment:
    """Operations drawn evenly for each image, all at one magnitude.

    `__call__(images, u)` takes the numbers in [0, 1) that decide, (B, 2·num_ops): for each turn
    the operation and its sign.
    """

    def __init__(self, size: int, num_ops: int = 2, magnitude_bin: int = 9, bins: int = 31) -> None:
        self.draws = 2 * num_ops
        self.table = _Table(
            [(name, magnitude(name, magnitude_bin, bins, size)) for name in RAND_AUGMENT]
        )

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        for choice, sign in zip(u[:, ::2].T, u[:, 1::2].T, strict=True):
            row = (choice * len(RAND_AUGMENT)).long()
            images = apply_operations(images, *self.table.lookup(row, sign))
        return images


class _Table:
    """Rows of (operation, magnitude), kept on the device where they were last asked for."""

    def __init__(self, rows: list[tuple[str, float]]) -> None:
        self.operation = torch.tensor([NAMES.index(name) for name, _ in rows])
        self.magnitude = torch.tensor([m for _, m in rows], dtype=torch.float64)
        self.signed = torch.tensor([name in SIGNED for name, _ in rows])

    def lookup(self, row: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
        """Operation and magnitude of each row; half of the signs turn a signed one negative."""
        self.operation = self.operation.to(row.device)
        self.magnitude = self.magnitude.to(row.device)
        self.signed = self.signed.to(row.device)
        m = self.magnitude[row]
        return self.operation[row], torch.where((sign < 0.5) & self.signed[row], -m, m)


def apply_operations(images: Tensor, operation: Tensor, magnitudes: Tensor) -> Tensor:
    """Apply to each image the operation with that index into NAMES, at its magnitude.

    Images with the same operation are brought together and done at once.
    """
    order = operation.argsort(stable=True)
    counts = torch.bincount(operation, minlength=len(NAMES)).tolist()
    gathered, m = images[order], magnitudes[order]
    parts = [gathered[: counts[0]]]
    done = counts[0]
    affine = sum(counts[1 : 1 + len(AFFINE)])
    if affine:
        matrices = []
        at = done
        for count, matrix in zip(counts[1:], AFFINE.values(), strict=False):
            matrices.append(matrix(m[at : at + count], *images.shape[-2:]))
            at += count
        parts.append(operations.transform(gathered[done:at], torch.cat(matrices)))
        done = at
    for count, colour in zip(counts[1 + len(AFFINE) :], COLOUR.values(), strict=True):
        if count:
            parts.append(colour(gathered[done : done + count], m[done : done + count]))
            done += count
    result = torch.empty_like(images)
    result[order] = torch.cat(parts)
    return result

"""AutoAugment and RandAugment, drawn for every image of a batch by itself.

E. Cubuk, B. Zoph, D. Mané, V. Vasudevan, Q. Le, 2019, arXiv:1805.09501 (the policy found on
CIFAR-10); E. Cubuk, B. Zoph, J. Shlens, Q. Le, 2020, arXiv:1909.13719. Magnitudes, signs and
operations are those of torchvision's classes of the same names.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from wcdas.data import operations
from wcdas.data.changes import KINDS, Constant, apply_changes

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

IDENTITY = ("affine", (1, 0, 0, 0, 1, 0))
Change = tuple[str, tuple[float, ...]]  # a kind of operation and its parameters

# What an operation does at magnitude m to images of a side length.
OPERATIONS: dict[str, Callable[[float, int], Change]] = {
    "Identity": lambda m, size: IDENTITY,
    "ShearX": lambda m, size: ("affine", operations.shear_x_matrix(m, size, size)),
    "ShearY": lambda m, size: ("affine", operations.shear_y_matrix(m, size, size)),
    "TranslateX": lambda m, size: ("affine", operations.translate_x_matrix(m, size, size)),
    "TranslateY": lambda m, size: ("affine", operations.translate_y_matrix(m, size, size)),
    "Rotate": lambda m, size: ("affine", operations.rotate_matrix(m, size, size)),
    "Brightness": lambda m, size: ("blend", (1 + m, 0, 0)),
    "Color": lambda m, size: ("blend", (1 + m, -m, 0)),
    "Contrast": lambda m, size: ("blend", (1 + m, 0, -m)),
    "Sharpness": lambda m, size: ("sharpness", (-m,)),
    "Posterize": lambda m, size: ("posterize", (256 - 2 ** (8 - int(m)),)),
    "Solarize": lambda m, size: ("solarize", (255 * m,)),
    "AutoContrast": lambda m, size: ("autocontrast", (1,)),
    "Equalize": lambda m, size: ("equalize", (1,)),
    "Invert": lambda m, size: ("solarize", (0,)),
}
SIGNED = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"}
SIGNED |= {"Brightness", "Color", "Contrast", "Sharpness"}
RAND_AUGMENT = [name for name in OPERATIONS if name != "Invert"]


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
        self.steps = [
            (
                Constant(torch.tensor([probability for _, probability, _ in column])),
                Table([(name, magnitude(name, bin_, 10, size)) for name, _, bin_ in column], size),
            )
            for column in zip(*CIFAR10_POLICY, strict=True)
        ]

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        pair = (u[:, 0] * len(CIFAR10_POLICY)).long()
        for (probability, table), (act, sign) in zip(self.steps, u[:, 1:].T.split(2), strict=True):
            applied = act < probability.on(u.device)[pair]
            images = apply_changes(images, table.lookup(pair, sign, applied))
        return images


class RandAugment:
    """Operations drawn evenly for each image, all at one magnitude.

    `__call__(images, u)` takes the numbers in [0, 1) that decide, (B, 2·num_ops): for each turn
    the operation and its sign.
    """

    def __init__(self, size: int, num_ops: int = 2, magnitude_bin: int = 9, bins: int = 31) -> None:
        self.draws = 2 * num_ops
        rows = [(name, magnitude(name, magnitude_bin, bins, size)) for name in RAND_AUGMENT]
        self.table = Table(rows, size)

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        for choice, sign in zip(u[:, ::2].T, u[:, 1::2].T, strict=True):
            row = (choice * len(RAND_AUGMENT)).long()
            images = apply_changes(images, self.table.lookup(row, sign))
        return images


class Table:
    """Rows of operations (name, magnitude) as parameters of all kinds that occur among them.

    Those of a row are neutral in every kind but its own.
    """

    def __init__(self, rows: list[tuple[str, float]], size: int) -> None:
        changes: list[Change] = [IDENTITY]
        for name, m in rows:
            other = -m if name in SIGNED else m
            changes += [OPERATIONS[name](m, size), OPERATIONS[name](other, size)]
        occurring = {kind for kind, _ in changes}
        self.widths = {k: len(KINDS[k].neutral) for k in KINDS if k in occurring}
        parameters = [
            [x for k in self.widths for x in (values if k == kind else KINDS[k].neutral)]
            for kind, values in changes
        ]
        self.parameters = Constant(torch.tensor(parameters, dtype=torch.float32))

    def lookup(self, row: Tensor, sign: Tensor, applied: Tensor | int = 1) -> dict[str, Tensor]:
        """Parameters (B, n) of each kind; half of the signs turn a signed magnitude negative."""
        entry = (row * 2 + (sign < 0.5) + 1) * applied
        parameters = self.parameters.on(row.device)[entry]
        return dict(zip(self.widths, parameters.split([*self.widths.values()], 1), strict=True))

"""The class prior that a user asks for, by a word or by a file."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from wcdas.errors import InputError
from wcdas.files import DamagedFile, read_text


def read_prior(given: str, class_names: Sequence[str], class_counts: Tensor) -> Tensor:
    """The class prior a user asks for, as float64 probabilities (classes,).

    Args:
        given: "uniform", "train" (the training images), or a file with one number a line in the
            order of the classes, or lines `class,number` in any order. Any scale will do.
        class_names: in label order.
        class_counts: training images per class.
    """
    num_classes = len(class_names)
    if given == "uniform":
        return torch.full((num_classes,), 1 / num_classes, dtype=torch.float64)
    if given == "train":
        return as_prior(class_counts, num_classes, "the training prior")
    path = Path(given)
    if path.is_dir() or not path.exists():
        raise InputError(
            f"prior {given!r} is neither 'uniform' nor 'train' nor a file; "
            "expected one of them, the file with lines `class,number`"
        )
    try:
        reader = csv.reader(read_text(path).removeprefix("\ufeff").splitlines())
        lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (DamagedFile, csv.Error):
        raise InputError(
            f"prior file {given!r} is not text; expected lines `class,number`"
        ) from None
    named = any(len(cells) > 1 for _, cells in lines)
    numbers = [number(cells, named, f"prior file {given!r}, line {at}:") for at, cells in lines]
    if named:
        names = [cells[0] for _, cells in lines]
        numbers = in_label_order(names, numbers, class_names, given)
    return as_prior(numbers, num_classes, f"prior file {given!r}")


def number(cells: Sequence[str], named: bool, where: str) -> float:
    """The number of a line, which is of at least 0."""
    if named and len(cells) != 2:
        raise InputError(f"{where} got {','.join(cells)!r}; expected `class,number`")
    text = cells[-1]
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where} got {text!r}; expected a number") from None
    if not 0 <= value < math.inf:
        raise InputError(f"{where} got {text}; expected a number of at least 0")
    return value


def in_label_order(
    names: Sequence[str], numbers: Sequence[float], class_names: Sequence[str], given: str
) -> list[float]:
    by_name: dict[str, float] = {}
    for name, value in zip(names, numbers, strict=True):
        if name in by_name:
            raise InputError(f"prior file {given!r} names class {name!r} twice; expected once")
        by_name[name] = value
    for name in class_names:
        if name not in by_name:
            raise InputError(f"prior file {given!r} lacks class {name!r}; expected every class")
    if unknown := by_name.keys() - set(class_names):
        first = next(name for name in by_name if name in unknown)
        raise InputError(f"prior file {given!r} names {first!r}, which is not a class")
    return [by_name[name] for name in class_names]


def as_prior(numbers: Sequence[float] | Tensor, num_classes: int, what: str) -> Tensor:
    """Numbers of any scale as probabilities, refused where they cannot be."""
    prior = torch.as_tensor(numbers).detach().double()
    if prior.shape != (num_classes,):
        raise InputError(
            f"{what} has {prior.numel()} numbers; expected one for each of {num_classes}"
        )
    if not prior.isfinite().all() or (prior < 0).any() or prior.sum() <= 0:
        raise InputError(f"{what} must hold numbers of at least 0, not all 0")
    return prior / prior.sum()

"""Names of classes, and labels as numbers 0 to C − 1 without gaps."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from wcdas.errors import InputError, explained
from wcdas.files import read_text

UNREADABLE = InputError


def natural(name: str) -> tuple[list[str | int], str]:
    """Return a sort key that puts class 2 before class 10."""
    parts = re.split(r"([0-9]+)", name.casefold())
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def read_class_names(path: str | Path) -> list[str]:
    """Return the names in a text file, one a line in the order of the labels."""
    expected = "); expected a text file, a name a line"
    with explained(f"class names cannot be read from {path} (", UNREADABLE, after=expected):
        text = read_text(Path(path))
    names = [line.strip() for line in text.rstrip().splitlines()]
    if not names or "" in names:
        raise InputError(
            f"{path} has an empty line among its class names; expected one name a line"
        )
    return names


def check_class_names(names: Sequence[str]) -> None:
    """Refuse names that are the same but for upper and lower case: they are most often a slip."""
    alike = defaultdict(list)
    for name in names:
        alike[name.casefold()].append(name)
    for first, *others in alike.values():
        if others:
            how = "differ only by case" if first != others[0] else "are the same"
            raise InputError(
                f"classes {first!r} and {others[0]!r} {how}; merge them or rename one of them"
            )


def encode_labels(
    values: Sequence[int] | Sequence[str], class_names: Sequence[str] | None, source: str
) -> tuple[Tensor, list[str]]:
    """Return labels as int64 and the names of their classes.

    Names become numbers in natural order (or that of `class_names`), numbers keep their meaning.
    """
    if not values:
        raise InputError(f"{source} holds no samples; expected at least two classes")
    if all(isinstance(value, int) for value in values):
        labels = torch.tensor(values, dtype=torch.int64)
        check_range(labels, len(class_names) if class_names else None, source)
        return labels, list(class_names or map(str, range(int(labels.max()) + 1)))
    words = [str(value) for value in values]
    names = list(class_names or sorted(set(words), key=natural))
    number = {name: i for i, name in enumerate(names)}
    for row, word in enumerate(words):
        if word not in number:
            raise InputError(f"{source}: label {word!r} of sample {row} is not a known class name")
    return torch.tensor([number[word] for word in words]), names


def check_range(labels: Tensor, num_classes: int | None, source: str) -> None:
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        row = int((labels < 0).nonzero()[0])
        raise InputError(f"{source}: label {low} of sample {row}; expected 0 or more")
    if num_classes is not None and high >= num_classes:
        row = int((labels >= num_classes).nonzero()[0])
        raise InputError(
            f"{source}: label {int(labels[row])} of sample {row}, but there are {num_classes} "
            f"class names; expected 0 to {num_classes - 1}"
        )
    if num_classes is None and high >= 10 * len(labels) + 1000:
        raise InputError(
            f"{source}: label {high} with {len(labels)} samples; number classes from 0"
        )


def check_gaps(labels: Tensor, class_names: Sequence[str], source: str) -> None:
    """Refuse classes between 0 and C − 1 that no training image has."""
    counts = torch.bincount(labels, minlength=len(class_names))
    missing = (counts == 0).nonzero().flatten().tolist()
    if missing:
        raise InputError(
            f"labels have gaps: {source} has no training samples of class {some(missing)} "
            f"({some(class_names[c] for c in missing)}); expected every label from 0 to "
            f"{len(class_names) - 1}. Renumber the labels or add samples"
        )


def some(items: Iterable[object]) -> str:
    """Return the first few of many, for one line of text."""
    items = list(items)
    return ", ".join(map(str, items[:5])) + (", …" if len(items) > 5 else "")

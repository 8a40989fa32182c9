"""Long tails: how many images each class keeps, which ones, and a summary in a few numbers."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wcdas.errors import InputError, unknown
from wcdas.groups import group_sizes

PROFILES = ("exp", "step")


def long_tail_counts(
    n_max: int, num_classes: int, imbalance: float, profile: str = "exp"
) -> list[int]:
    """Images per class, from n_max down to n_max / imbalance.

    "exp": n_c = int(n_max · imbalance^(−c/(C−1))). "step": n_max for the first half of the
    classes, int(n_max / imbalance) for the others (Cao et al., 2019, arXiv:1906.07413).

    >>> long_tail_counts(500, 5, 100)
    [500, 158, 50, 15, 5]
    >>> long_tail_counts(500, 5, 100, "step")
    [500, 500, 5, 5, 5]
    """
    if profile not in PROFILES:
        raise unknown("data.profile", profile, PROFILES)
    if not 1 <= imbalance <= n_max:
        raise InputError(
            f"data.imbalance is {imbalance:g}; expected a number from 1 to {n_max}, "
            "which leaves the smallest class one image"
        )
    if profile == "step":
        half = num_classes // 2
        return [n_max] * half + [int(n_max / imbalance)] * (num_classes - half)
    last = max(num_classes - 1, 1)
    # Rounding may take n_max · (1 / n_max) below one.
    return [max(int(n_max * imbalance ** (-c / last)), 1) for c in range(num_classes)]


def canonical_indices(labels: Tensor, counts: list[int]) -> Tensor:
    """The images most published work keeps: n_c of each class, class by class.

    NumPy's legacy generator, seeded with 0, shuffles the indices of class 0, 1, 2, … in turn and
    the first n_c stay. The shuffles do not depend on the counts, so that smaller sets are nested
    in larger ones.
    """
    generator = np.random.RandomState(0)
    chosen = []
    for c, count in enumerate(counts):
        of_class = np.flatnonzero(labels.numpy() == c)
        generator.shuffle(of_class)
        chosen.append(of_class[:count])
    return torch.from_numpy(np.concatenate(chosen))


def first_indices(labels: Tensor, counts: list[int]) -> Tensor:
    """The first n_c images of each class, class by class."""
    return torch.cat([(labels == c).nonzero()[:count, 0] for c, count in enumerate(counts)])


@dataclass(frozen=True)
class LongTailSummary:
    """A long tail in numbers: `many`, `medium` and `few` count classes, `gini` is 0 if balanced."""

    images: int
    classes: int
    largest: int
    smallest: int
    imbalance: float
    gini: float
    many: int
    medium: int
    few: int


def summary(class_counts: Tensor) -> LongTailSummary:
    """The long tail of a training set in a few numbers.

    >>> summary(torch.tensor([300, 50, 10])).imbalance
    30.0
    """
    n = class_counts.sort().values.double()
    rank = torch.arange(1, len(n) + 1, dtype=torch.float64)
    # Mean absolute difference of two classes over twice their mean, from the sorted counts.
    gini = ((2 * rank - len(n) - 1) * n).sum() / (len(n) * n.sum())
    return LongTailSummary(
        images=int(n.sum()),
        classes=len(n),
        largest=int(n[-1]),
        smallest=int(n[0]),
        imbalance=float(n[-1] / n[0]),
        gini=float(gini),
        **group_sizes(class_counts),
    )

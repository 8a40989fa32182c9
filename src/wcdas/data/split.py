"""Which images a split keeps: a long tail, a test set, images held out of the training."""

import numpy as np
import torch
from torch import Tensor

from wcdas import rng
from wcdas.errors import InputError, unknown
from wcdas.groups import FEW

PROFILES = ("exp", "step")
TEST_FRACTION = 0.2


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
    """Return the images most published work keeps: n_c of each class, class by class.

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
    """Return the first n_c images of each class, class by class."""
    return torch.cat([(labels == c).nonzero()[:count, 0] for c, count in enumerate(counts)])


def stratified_split(labels: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return indices of the training and test images: 20 % of each class are for the test.

    Of two or more at least one is for the test and one for training; a single one is for training.
    """
    generator = np.random.RandomState(seed % 2**32)
    test = torch.zeros(len(labels), dtype=torch.bool)
    by_class = np.argsort(labels.numpy(), kind="stable")
    for of_class in np.split(by_class, labels.bincount().cumsum(0)[:-1].numpy()):
        generator.shuffle(of_class)
        n = len(of_class)
        test[of_class[: max(min(max(round(TEST_FRACTION * n), 1), n - 1), 0)]] = True
    return (~test).nonzero().flatten(), test.nonzero().flatten()


def holdout(
    labels: Tensor,
    num_classes: int,
    fraction: float,
    key: int,
    smallest: int = FEW,
    most: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return indices of the training images to keep, and to hold out for a temperature or a choice.

    Held out are `fraction` of each class, but at least one image and, where `most` is not 0, no
    more than that, of classes with `smallest` or more.
    """
    counts = torch.bincount(labels, minlength=num_classes)
    wanted = held_out_counts(counts, fraction, smallest, most)
    shuffled = rng.permutation(key, len(labels))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    ordinal = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[by_class[ordinal < wanted[labels[by_class]]]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def held_out_counts(counts: Tensor, fraction: float, smallest: int = FEW, most: int = 0) -> Tensor:
    """Return how many images of each class are held out, from how many it has."""
    wanted = (fraction * counts).long().clamp(min=1 if fraction else 0, max=most or None)
    return torch.where(counts >= smallest, wanted, 0)

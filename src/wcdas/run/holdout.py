"""Training images kept out of every stage: to fit the temperature, and to choose on."""

import torch
from torch import Tensor

from wcdas import rng
from wcdas.groups import FEW


def holdout(
    labels: Tensor, num_classes: int, fraction: float, key: int, smallest: int = FEW
) -> tuple[Tensor, Tensor]:
    """Indices (kept, held out): `fraction` of each class, but at least one image, of classes
    that have `smallest` or more."""
    counts = torch.bincount(labels, minlength=num_classes)
    wanted = held_out_counts(counts, fraction, smallest)
    shuffled = rng.permutation(key, len(labels))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    place = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[by_class[place < wanted[labels[by_class]]]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def held_out_counts(counts: Tensor, fraction: float, smallest: int = FEW) -> Tensor:
    """How many images of each class are held out, of the numbers it has."""
    wanted = (fraction * counts).long().clamp(min=1 if fraction else 0)
    return torch.where(counts >= smallest, wanted, 0)

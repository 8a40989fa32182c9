"""Training images kept out of every stage, on which the temperature is fitted."""

import torch
from torch import Tensor

from wcdas.data import random
from wcdas.data.profile import FEW


def holdout(labels: Tensor, num_classes: int, fraction: float, key: int) -> tuple[Tensor, Tensor]:
    """Indices (kept, held out): `fraction` of each class, none of the few-image classes."""
    counts = torch.bincount(labels, minlength=num_classes)
    shuffled = random.permutation(key, len(labels))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    place = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    wanted = torch.where(counts >= FEW, (fraction * counts).long(), 0)
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[by_class[place < wanted[labels[by_class]]]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()

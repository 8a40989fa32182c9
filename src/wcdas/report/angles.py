"""Angles between test features and class weights, as histograms by group."""

from typing import Any

import torch
from torch import Tensor

from wcdas.groups import groups
from wcdas.heads import Head

BINS = 36  # of five degrees
ROWS = 1024


@torch.no_grad()
def angle_histograms(
    head: Head, features: Tensor, labels: Tensor, class_counts: Tensor
) -> dict[str, Any] | None:
    """Images in bins of 5° by group: to the weight of the own class, and to the nearest other.

    None where the head has no weight vector a class, or one class only.
    """
    classes = len(class_counts)
    if head.weight.shape != (classes, features.shape[1]) or classes < 2 or len(labels) == 0:
        return None
    parts = [
        _angles(head, x, y) for x, y in zip(features.split(ROWS), labels.split(ROWS), strict=True)
    ]
    own, other = (torch.cat(column) for column in zip(*parts, strict=True))
    if not (own.isfinite().all() and other.isfinite().all()):
        return None
    masks = {name: mask[labels] for name, mask in groups(class_counts).items()}
    return {
        "own": {name: _histogram(own[mask]) for name, mask in masks.items()},
        "other": {name: _histogram(other[mask]) for name, mask in masks.items()},
        "mean_own": {name: _mean(own[mask]) for name, mask in masks.items()},
        "mean_other": {name: _mean(other[mask]) for name, mask in masks.items()},
    }


def _angles(head: Head, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    cosine = head.cosine(x.to(head.weight.device)).float().cpu()
    own = cosine.gather(1, y.unsqueeze(1)).squeeze(1)
    other = cosine.scatter(1, y.unsqueeze(1), -torch.inf).amax(1)
    return own.clamp(-1, 1).acos().rad2deg(), other.clamp(-1, 1).acos().rad2deg()


def _histogram(degrees: Tensor) -> list[int]:
    which = (degrees / 180 * BINS).long().clamp(0, BINS - 1)
    return torch.bincount(which, minlength=BINS).tolist()


def _mean(degrees: Tensor) -> float | None:
    return round(float(degrees.mean()), 2) if len(degrees) else None

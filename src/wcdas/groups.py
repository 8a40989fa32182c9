"""The groups of classes by their training images: many (> 100), medium (20 to 100), few (< 20)."""

import torch
from torch import Tensor

MANY, FEW = 100, 20
GROUPS = ("many", "medium", "few")
IN_WORDS = {
    "many": f"many (> {MANY})",
    "medium": f"medium ({FEW}–{MANY})",
    "few": f"few (< {FEW})",
}


def groups(class_counts: Tensor) -> dict[str, Tensor]:
    """Masks of the many (> 100), medium (20 to 100) and few (< 20 training images) classes."""
    many, few = class_counts > MANY, class_counts < FEW
    return {"many": many, "medium": ~(many | few), "few": few}


def group_indices(class_counts: Tensor) -> Tensor:
    """Where the group of each class stands in `GROUPS`, int64 (C,)."""
    return torch.stack(list(groups(class_counts).values())).int().argmax(0)


def group_names(class_counts: Tensor) -> list[str]:
    """The group of each class.

    >>> group_names(torch.tensor([300, 100, 2]))
    ['many', 'medium', 'few']
    """
    return [GROUPS[i] for i in group_indices(class_counts).tolist()]


def group_sizes(class_counts: Tensor) -> dict[str, int]:
    """The number of classes in each group."""
    return {name: int(mask.sum()) for name, mask in groups(class_counts).items()}


def group_means(values: Tensor, class_counts: Tensor) -> dict[str, float | None]:
    """The mean over the classes of each group; a class whose value is NaN has none.

    >>> group_means(torch.tensor([0.5, 1.0, torch.nan]), torch.tensor([300, 200, 2]))
    {'many': 0.75, 'medium': None, 'few': None}
    """
    masks = {name: mask & ~values.isnan() for name, mask in groups(class_counts).items()}
    return {
        name: float(values[mask].double().mean()) if mask.any() else None
        for name, mask in masks.items()
    }

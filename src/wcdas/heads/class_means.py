"""The mean feature of every class."""

import torch
from torch import Tensor


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Means (classes, d), 0 for a class without features, and the number of features of each."""
    sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    sums.index_add_(0, labels, features.double())
    counts = torch.bincount(labels, minlength=num_classes)
    return (sums / counts.clamp(min=1).unsqueeze(1)).to(features.dtype), counts

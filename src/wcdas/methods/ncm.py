"""Nearest class mean."""

import torch

from wcdas.methods.base import REPRESENTATION, Method
from wcdas.training.method import StageStart
from wcdas.training.model import Classifier


def class_means(features: torch.Tensor, labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """(classes, d); 0 for a class without images."""
    sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, features.double())
    counts = torch.bincount(labels, minlength=num_classes).clamp(min=1)
    return (sums / counts[:, None]).to(features.dtype)


def set_means(model: Classifier, start: StageStart) -> None:
    """Let the cosine head compare with the mean feature of every class."""
    if start.stage == "classifier":
        features, labels = start.features()
        model.head.weight.copy_(class_means(features, labels, model.head.num_classes))


NCM = Method(
    summary="softmax, then the class whose mean feature has the smallest angle",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    defaults={
        "head": {"name": "linear"},
        "stages": {
            "representation": REPRESENTATION,
            "classifier": {"trains": "nothing", "head": "cosine"},
        },
    },
    begin_stage=set_means,
)

"""What the methods share that contrast images with each other."""

import torch.distributed as dist
from torch import Tensor, nn

from wcdas.backbones.identity import Identity
from wcdas.errors import InputError
from wcdas.methods.method import Parts
from wcdas.processes import of_all


def projection(in_features: int, out_features: int, batch_norm: bool = False) -> nn.Sequential:
    """Features → embeddings: a perceptron with one hidden layer as wide as the features."""
    hidden = nn.Linear(in_features, in_features)
    norm = [nn.BatchNorm1d(in_features)] if batch_norm else []
    return nn.Sequential(hidden, *norm, nn.ReLU(), nn.Linear(in_features, out_features))


def of_all_ranks(rows: Tensor) -> Tensor:
    """The rows of every process, in the order of the batch they share.

    Gradients flow back to the process a row came from: where all take the same loss of all rows,
    the mean that DDP forms is the gradient of a single process.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return rows
    return of_all(rows)


def check_backbone(parts: Parts, method: str) -> None:
    """Contrasting images trains the backbone; there has to be one."""
    if isinstance(parts.backbone, Identity):
        raise InputError(
            f"{method} trains the features, but the backbone is 'identity'; "
            "give images, or train on feature vectors with --method wcdas"
        )

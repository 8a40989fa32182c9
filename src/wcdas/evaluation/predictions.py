"""The predicted class of each image, its probability, and the rank and loss of the true one."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wcdas.checks import check_labels
from wcdas.errors import InputError


@dataclass(frozen=True)
class Predictions:
    """One number an image: predicted class, its probability, rank and −log p of the true class.

    The rank counts the classes before the true one; of equal logits the lower class comes first.
    """

    predicted: Tensor
    confidence: Tensor
    rank: Tensor
    nll: Tensor


def predictions(logits: Tensor, labels: Tensor) -> Predictions:
    check_logits(logits, labels)
    parts = []
    classes = torch.arange(logits.shape[1])
    for z, y in chunks(logits, labels):
        predicted = z.argmax(dim=1)
        highest = z.gather(1, predicted.unsqueeze(1)).squeeze(1)
        confidence = (highest - z.logsumexp(dim=1)).exp()
        true = z.gather(1, y.unsqueeze(1))
        before = (z > true) | ((z == true) & (classes < y.unsqueeze(1)))
        nll = F.cross_entropy(z, y, reduction="none")
        parts.append((predicted, confidence, before.sum(1), nll))
    return Predictions(*(torch.cat(column) for column in zip(*parts, strict=True)))


def chunks(logits: Tensor, labels: Tensor, numbers: int = 1 << 22) -> Iterator[tuple[Tensor, ...]]:
    """Rows in portions of a few million numbers, as float32 on the CPU: memory stays small."""
    rows = max(numbers // logits.shape[1], 1)
    for z, y in zip(logits.split(rows), labels.split(rows), strict=True):
        yield z.detach().float().cpu(), y.cpu().long()


def check_logits(logits: Tensor, labels: Tensor) -> None:
    if not logits.is_floating_point() or logits.dim() != 2 or logits.shape[1] == 0:
        raise InputError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; "
            "expected floating-point numbers (images, classes)"
        )
    check_labels(labels, *logits.shape)
    if bool(logits.isnan().any()):
        row = int(logits.isnan().any(dim=1).nonzero()[0])
        raise InputError(f"logits contain NaN, first in row {row}; the model has diverged")

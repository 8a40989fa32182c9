"""The predicted class of each image, its probability, and the rank and loss of the true one."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wcdas.checks import check_labels
from wcdas.errors import InputError
from wcdas.evaluation.scores import Scores, Summary, as_scores, best, best_of

DEEPEST = 5  # rank that is told from those behind it


@dataclass(frozen=True)
class Predictions:
    """One number an image: predicted class, its probability, rank and −log p of the true class.

    The rank counts the classes before the true one, up to 5; of equal logits the lower class comes
    first.
    """

    predicted: Tensor
    confidence: Tensor
    rank: Tensor
    nll: Tensor


def predictions(logits: Tensor | Scores, labels: Tensor) -> Predictions:
    scores = as_scores(logits)
    check_labels(labels, *scores.shape)
    y = labels.to(scores.device).long()

    def of_part(z: Tensor, rows: slice, classes: slice) -> Summary:
        if scores.whole_rows:
            nll = F.cross_entropy(z, y[rows], reduction="none")
        else:
            nll = -own_logits(z, y[rows], classes)  # and log Σ exp once that is known
        return *best(z, classes.start, DEEPEST), z.logsumexp(1), nll

    def merged(one: Summary, other: Summary) -> Summary:
        lse, nll = torch.logaddexp(one[2], other[2]), torch.minimum(one[3], other[3])
        return *best_of(one[:2], other[:2]), lse, nll

    values, classes, lse, nll = scores.summary(of_part, merged)
    if lse.isnan().any():
        row = int(lse.isnan().nonzero()[0])
        raise InputError(f"logits contain NaN, first in row {row}; the model has diverged")
    before = (classes != labels.cpu().unsqueeze(1)).long().cumprod(1).sum(1)
    return Predictions(
        predicted=classes[:, 0],
        confidence=(values[:, 0] - lse).exp(),
        rank=before,
        nll=nll if scores.whole_rows else lse + nll,
    )


def most_probable(logits: Tensor | Scores, k: int) -> tuple[Tensor, Tensor]:
    """The probabilities of the k most probable classes of every image, and these, the best first;
    of equal ones the lower class."""
    scores = as_scores(logits)

    def of_part(z: Tensor, rows: slice, classes: slice) -> Summary:
        if scores.whole_rows:
            return best(z.softmax(1), classes.start, k)
        return *best(z, classes.start, k), z.logsumexp(1)

    def merged(one: Summary, other: Summary) -> Summary:
        return *best_of(one[:2], other[:2]), torch.logaddexp(one[2], other[2])

    values, classes, *lse = scores.summary(of_part, merged)
    return (values if scores.whole_rows else (values - lse[0].unsqueeze(1)).exp()), classes


def own_logits(z: Tensor, labels: Tensor, classes: slice) -> Tensor:
    """z of the true class where it is among these, else −∞."""
    own = z.new_full((len(z),), -torch.inf)
    here = (labels >= classes.start) & (labels < classes.stop)
    own[here] = z[here, labels[here] - classes.start]
    return own

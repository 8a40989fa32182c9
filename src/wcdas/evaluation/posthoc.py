"""Corrections of a trained classifier that need no training: pure functions on tensors."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from wcdas.errors import InputError
from wcdas.evaluation.metrics import evaluate
from wcdas.evaluation.prior import as_prior
from wcdas.evaluation.scores import Scores

Logits = TypeVar("Logits", Tensor, Scores)


def shift_prior(logits: Logits, from_prior: Tensor, to_prior: Tensor) -> Logits:
    """z_j + log π_to(j) − log π_from(j): what the logits would be under another class prior.

    Bayes' rule, p(j|x) ∝ p(x|j) π(j), where z are log-probabilities under `from_prior`. Divide by
    a temperature before, not after. A class of target prior 0 is excluded (−∞).

    Example:
        >>> shift_prior(torch.zeros(1, 2), torch.tensor([0.5, 0.5]), torch.tensor([0.8, 0.2]))
        tensor([[ 0.4700, -0.9163]])
    """
    source = as_prior(from_prior, logits.shape[-1], "the prior the logits were trained under")
    target = as_prior(to_prior, logits.shape[-1], "the target prior")
    if (source == 0).any():
        missing = int((source == 0).nonzero()[0])
        raise InputError(
            f"the prior the logits were trained under is 0 for class {missing}; expected above 0"
        )
    return logits + (target.log() - source.log()).to(logits.device, logits.dtype)


def adjust_logits(logits: Logits, class_counts: Sequence[int] | Tensor, tau: float = 1.0) -> Logits:
    """z_j − τ log π_j, π_j = n_j/N: logit adjustment after training.

    Menon et al., 2020 (arXiv:2007.07314). τ = 1 is `shift_prior` from training to uniform, up to
    a constant.
    """
    prior = as_prior(torch.as_tensor(class_counts), logits.shape[-1], "class_counts")
    if (prior == 0).any():
        raise InputError("logit adjustment needs a training image of every class")
    return logits + -tau * prior.log().to(logits.device, logits.dtype)


def max_norm(weight: Tensor, limit: float) -> Tensor:
    """w_j scaled down to the norm `limit` where it is longer: MaxNorm as a projection.

    Alshammari et al., 2022 (arXiv:2203.14197).
    """
    if not limit > 0:
        raise InputError(f"the limit of MaxNorm is {limit}; expected a number above 0")
    return weight.renorm(p=2, dim=0, maxnorm=limit)


def choose(
    values: Iterable[float], logits_of: Callable[[float], Tensor | Scores], labels: Tensor
) -> float:
    """The middle of the values (of τ, of a limit) that are best on held-out images.

    Those are best whose balanced accuracy is within a standard error of the highest one, p:

        √( p(1 − p) Σ_j 1/n_j ) / C,  of n_j held-out images of each of C classes.

    Where rare classes have one each, which value is the very highest is chance.

    Args:
        values: to try, in order.
        logits_of: the held-out logits under a value.
        labels: of the held-out images.

    Example:
        >>> logits, labels = torch.tensor([[1.0, 0.5], [1.0, 0.0]]), torch.tensor([1, 0])
        >>> choose([0.0, 0.3, 1.0], lambda tau: adjust_logits(logits, [90, 10], tau), labels)
        0.3
    """
    if len(labels) == 0:
        raise InputError("there are no held-out images to choose on; hold some out of training")
    tried, accuracies = list(values), []
    for value in tried:
        logits = logits_of(value)
        metrics = evaluate(logits, labels, torch.ones(logits.shape[1]))
        accuracies.append(metrics["balanced_accuracy"])
    if not tried:
        raise InputError("there are no values to choose from; expected at least one")
    counts, p = labels.unique(return_counts=True)[1], max(accuracies)
    error = math.sqrt(p * (1 - p) * float((1 / counts).sum())) / len(counts)
    best = [i for i, accuracy in enumerate(accuracies) if accuracy >= p - error]
    return tried[(best[0] + best[-1]) // 2]

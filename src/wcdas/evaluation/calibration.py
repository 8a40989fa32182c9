"""Calibration: a probability of 0.8 should be right eight times in ten; a temperature helps."""

import math
from typing import Any

import torch
from torch import Tensor

from wcdas.checks import check_labels
from wcdas.errors import InputError
from wcdas.evaluation.predictions import own_logits
from wcdas.evaluation.scores import Scores, Summary, as_scores

BINS = 15
FEWEST = 10  # images that a temperature is fitted on; of fewer, one more would turn it over
LOWEST, HIGHEST = 0.05, 20.0


def bin_sums(confidence: Tensor, correct: Tensor, bins: int = BINS) -> Tensor:
    """Images, summed confidence and summed correctness of equal-width bins (l, u]: (3, bins)."""
    if bins < 1:
        raise InputError(f"bins is {bins}; expected at least 1")
    which = (confidence.double() * bins).ceil().long().sub(1).clamp(0, bins - 1)
    columns = [torch.ones(len(which)), confidence, correct]
    return torch.stack([torch.bincount(which, column.double(), bins) for column in columns])


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """ECE = Σ_b n_b/N · |accuracy_b − confidence_b|, Guo et al., 2017 (arXiv:1706.04599).

    Example:
        >>> confidence, correct = torch.tensor([0.75, 0.75]), torch.tensor([True, False])
        >>> expected_calibration_error(confidence, correct)
        0.25
    """
    _, confidences, corrects = bin_sums(confidence, correct, bins)
    return float((corrects - confidences).abs().sum() / max(len(confidence), 1))


def reliability_bins(confidence: Tensor, correct: Tensor, bins: int = BINS) -> list[dict[str, Any]]:
    """The bars of a reliability diagram; an empty bin has no confidence and no accuracy."""
    rows = bin_sums(confidence, correct, bins).T.tolist()
    return [
        {
            "lower": b / bins,
            "upper": (b + 1) / bins,
            "images": int(images),
            "confidence": confidences / images if images else None,
            "accuracy": corrects / images if images else None,
        }
        for b, (images, confidences, corrects) in enumerate(rows)
    ]


def fit_temperature(logits: Tensor | Scores, labels: Tensor, lowest: float = LOWEST) -> float:
    """T in [lowest, 20] for which softmax(z/T) has the least negative log-likelihood.

    The likelihood is concave in β = 1/T, so the sign of its slope, Σ (Σ_j p_j z_j − z_y), tells
    on which side the best β lies: bisection on log β. Fit it on images that were not trained on.
    """
    scores = as_scores(logits)
    check_labels(labels, *scores.shape)
    if len(labels) == 0:
        return 1.0
    own = _own(scores, labels.to(scores.device).long())
    low, high = math.log(1 / HIGHEST), math.log(1 / lowest)
    for _ in range(24):
        middle = (low + high) / 2
        if slope(scores, own, math.exp(middle)) > 0:
            high = middle
        else:
            low = middle
    return round(math.exp(-(low + high) / 2), 6)  # as far as the bisection goes


def was_fitted(held_out: int, temperature: float) -> bool:
    """Whether a run's temperature was fitted on so many images; older runs did on any number."""
    return held_out >= FEWEST or temperature != 1


def slope(scores: Scores, own: Tensor, beta: float) -> float:
    """d/dβ of the negative log-likelihood of softmax(β z); `own` are the true classes' z."""

    def of_part(z: Tensor, rows: slice, classes: slice) -> Summary:
        excess = z - own[rows].unsqueeze(1)
        scaled = beta * excess
        mean = (scaled.softmax(dim=1) * excess).sum(1, dtype=torch.float64)
        return mean, scaled.logsumexp(1)

    def merged(one: Summary, other: Summary) -> Summary:
        lse = torch.logaddexp(one[1], other[1])
        return one[0] * (one[1] - lse).exp() + other[0] * (other[1] - lse).exp(), lse

    return float(scores.summary(of_part, merged)[0].sum())


def _own(scores: Scores, labels: Tensor) -> Tensor:
    """z of every image's true class, if all z are finite."""

    def of_part(z: Tensor, rows: slice, classes: slice) -> Summary:
        return own_logits(z, labels[rows], classes), z.isfinite().all(1)

    def merged(one: Summary, other: Summary) -> Summary:
        return torch.maximum(one[0], other[0]), one[1] & other[1]

    own, finite = scores.summary(of_part, merged)
    if not finite.all():
        raise InputError(
            "logits contain NaN or infinity; fit the temperature before excluding classes"
        )
    return own.to(scores.device)

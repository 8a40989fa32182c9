"""Calibration: a probability of 0.8 should be right eight times in ten; a temperature helps."""

import math
from typing import Any

import torch
from torch import Tensor

from wcdas.errors import InputError
from wcdas.evaluation.predictions import check_logits, chunks

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


def fit_temperature(logits: Tensor, labels: Tensor, lowest: float = LOWEST) -> float:
    """T in [lowest, 20] for which softmax(z/T) has the least negative log-likelihood.

    The likelihood is concave in β = 1/T, so the sign of its slope, Σ (Σ_j p_j z_j − z_y), tells
    on which side the best β lies: bisection on log β. Fit it on images that were not trained on.
    """
    check_logits(logits, labels)
    if not logits.isfinite().all():
        raise InputError("logits contain infinity; fit the temperature before excluding classes")
    if len(labels) == 0:
        return 1.0
    low, high = math.log(1 / HIGHEST), math.log(1 / lowest)
    for _ in range(24):
        middle = (low + high) / 2
        if slope(logits, labels, math.exp(middle)) > 0:
            high = middle
        else:
            low = middle
    return round(math.exp(-(low + high) / 2), 6)  # as far as the bisection goes


def was_fitted(held_out: int, temperature: float) -> bool:
    """Whether a run's temperature was fitted on so many images; older runs did on any number."""
    return held_out >= FEWEST or temperature != 1


def slope(logits: Tensor, labels: Tensor, beta: float) -> float:
    """d/dβ of the negative log-likelihood of softmax(β z)."""
    total = 0.0
    for z, y in chunks(logits, labels):
        excess = z - z.gather(1, y.unsqueeze(1))
        total += float(((beta * excess).softmax(dim=1) * excess).sum(1, dtype=torch.float64).sum())
    return total

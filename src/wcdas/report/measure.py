"""What a page needs beside the metrics: taken once from the model's test outputs, kept small."""

from typing import Any

import torch
from torch import Tensor

from wcdas.data.dataset import Dataset
from wcdas.evaluation.calibration import reliability_bins
from wcdas.evaluation.predictions import predictions
from wcdas.heads import Head
from wcdas.heads.concentration import ConcentrationHead
from wcdas.heads.experts import ExpertsHead
from wcdas.report.angles import angle_histograms
from wcdas.report.confusions import costly_confusions
from wcdas.report.feature_map import feature_map

FORMAT = 1


def measure(
    head: Head,
    features: Tensor,
    logits: Tensor,
    dataset: Dataset,
    metrics: dict[str, Any],
) -> dict[str, Any]:
    """The contents of report.json.

    Args:
        head: of the trained model.
        features: of the test samples, on the CPU.
        logits: of the same samples, over the temperature.
        dataset: whose test samples they are.
        metrics: what `evaluate` made of the logits.
    """
    labels = dataset.test.labels.cpu()
    p = predictions(logits, labels)
    correct = p.predicted == labels
    return {
        "format": FORMAT,
        "rho": class_concentrations(head),
        "angles": angle_histograms(head, features, labels, dataset.class_counts),
        "reliability": reliability_bins(p.confidence, correct),
        "confidence": float(p.confidence.mean()) if len(labels) else None,
        "confusions": costly_confusions(metrics["confusion"], dataset.test_counts, p, dataset.test),
        "map": feature_map(features, labels, p.predicted),
    }


@torch.no_grad()
def class_concentrations(head: Head) -> list[float] | None:
    """ρ of every class, the mean over experts; None for a head without."""
    heads = list(head.experts) if isinstance(head, ExpertsHead) else [head]
    found = [
        one.concentration.double().cpu() for one in heads if isinstance(one, ConcentrationHead)
    ]
    if len(found) < len(heads):
        return None
    rho = torch.stack(found).mean(0)
    return [round(value, 5) for value in rho.tolist()]

"""The metrics of a classifier on a test set, for every class and for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from wcdas.errors import InputError
from wcdas.evaluation.calibration import expected_calibration_error
from wcdas.evaluation.predictions import DEEPEST, Predictions, predictions
from wcdas.evaluation.scores import Scores
from wcdas.groups import group_means, group_sizes


def evaluate(
    logits: Tensor | Scores,
    labels: Tensor,
    class_counts: Sequence[int] | Tensor,
    class_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The metrics of a test set, ready for JSON; None where there is nothing to measure.

    Groups, balanced accuracy and macro F1 are means over the classes with test images. On an
    imbalanced test set balanced accuracy is the headline, else top-1, which equals it there.

    Args:
        logits: (images, classes).
        labels: the true classes (images,).
        class_counts: training images per class, which put it in many, medium or few.
        class_names: what the per-class rows call the classes; their numbers without it.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
        >>> metrics = evaluate(logits, torch.tensor([0, 1, 1]), class_counts=[200, 10])
        >>> metrics["many"], metrics["medium"], metrics["few"], metrics["headline"]
        (1.0, None, 0.5, 'balanced_accuracy')
    """
    num_classes = logits.shape[-1]
    class_counts = torch.as_tensor(class_counts).cpu()
    if class_counts.shape != (num_classes,):
        raise InputError(
            f"class_counts have shape {tuple(class_counts.shape)}; expected ({num_classes},)"
        )
    if class_names is not None and len(class_names) != num_classes:
        raise InputError(f"{len(class_names)} class names for {num_classes} classes")
    return metrics_of(predictions(logits, labels), labels, class_counts, class_names)


def metrics_of(
    p: Predictions, labels: Tensor, class_counts: Tensor, class_names: Sequence[str] | None
) -> dict[str, Any]:
    """The same, of predictions."""
    num_classes = len(class_counts)
    labels = labels.cpu().long()
    correct = p.rank == 0

    hits = torch.bincount(labels[correct], minlength=num_classes).double()
    tested = torch.bincount(labels, minlength=num_classes)
    predicted = torch.bincount(p.predicted, minlength=num_classes)
    recall, precision, f1 = hits / tested, hits / predicted, 2 * hits / (tested + predicted)

    present = tested > 0
    balanced = bool(present.any()) and len(tested[present].unique()) == 1
    pairs, numbers = torch.unique(labels * num_classes + p.predicted, return_counts=True)
    confusion = torch.stack([pairs // num_classes, pairs % num_classes, numbers], dim=1)
    columns = {
        "train_images": class_counts,
        "test_images": tested,
        "accuracy": recall,
        "precision": precision,
        "f1": f1.where(present, torch.nan),
    }
    return {
        "test_images": len(labels),
        "headline": "top1" if balanced else "balanced_accuracy",
        "test_is_balanced": balanced,
        "top1": mean(correct),
        "top5": mean(p.rank < min(DEEPEST, num_classes)),
        "balanced_accuracy": mean(recall[present]),
        **group_means(recall, class_counts),
        "group_classes": group_sizes(class_counts),
        "macro_f1": mean(f1[present]),
        "ece": expected_calibration_error(p.confidence, correct) if len(labels) else None,
        "nll": mean(p.nll),
        "never_predicted": int((present & (predicted == 0)).sum()),
        "per_class": per_class(class_names or range(num_classes), columns, confusion),
        "confusion": confusion.tolist(),
    }


def mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None


def per_class(
    names: Sequence[Any], columns: Mapping[str, Tensor], confusion: Tensor
) -> list[dict[str, Any]]:
    """A row for each class, with the wrong class its images are most often taken for."""
    wrong = confusion[confusion[:, 0] != confusion[:, 1]].flip(0)
    # From rare to frequent, so that the most frequent is written last; ties go to the lower class.
    wrong = wrong[wrong[:, 2].argsort(stable=True)]
    most = {true: names[predicted] for true, predicted, _ in wrong.tolist()}
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [
        {"class": names[c]}
        | {key: None if x != x else x for key, x in zip(columns, row, strict=True)}  # NaN is None
        | {"most_confused_with": most.get(c)}
        for c, row in enumerate(values)
    ]

"""The confusions that cost most, with examples."""

from typing import Any

from torch import Tensor

from wcdas.data.dataset import Split
from wcdas.evaluation.predictions import Predictions
from wcdas.report.thumbnails import thumbnail

SHOWN, EXAMPLES = 12, 4


def costly_confusions(
    confusion: list[list[int]], tested: Tensor, p: Predictions, split: Split
) -> list[dict[str, Any]]:
    """Pairs (true, taken for) by the points of balanced accuracy they cost.

    A confusion of n of the n_c test images of a class costs 100·n/(n_c·C) points, where C counts
    the classes with test images: an image of a class with few test images weighs more.
    """
    classes = int((tested > 0).sum())
    wrong = [(true, other, n) for true, other, n in confusion if true != other]
    wrong.sort(key=lambda pair: (-pair[2] / int(tested[pair[0]]), pair[0], pair[1]))
    return [
        {
            "true": true,
            "predicted": other,
            "images": n,
            "of": int(tested[true]),
            "cost": round(100 * n / (int(tested[true]) * classes), 4),
            "examples": _examples(split, p, true, other),
            "rightly": _rightly(split, p, other),
        }
        for true, other, n in wrong[:SHOWN]
    ]


def _examples(split: Split, p: Predictions, true: int, other: int) -> list[dict[str, Any]]:
    """The surest mistakes first."""
    found = ((split.labels == true) & (p.predicted == other)).nonzero()[:, 0]
    surest = found[p.confidence[found].argsort(descending=True, stable=True)][:EXAMPLES]
    return [_example(split, p, index) for index in surest.tolist()]


def _rightly(split: Split, p: Predictions, other: int) -> dict[str, Any] | None:
    """A test sample of the class that was taken for, rightly so where there is one."""
    of_class = split.labels == other
    for mask in (of_class & (p.predicted == other), of_class):
        found = mask.nonzero()[:, 0]
        if len(found):
            return _example(split, p, int(found[p.confidence[found].argmax()]))
    return None


def _example(split: Split, p: Predictions, index: int) -> dict[str, Any]:
    return {
        "name": split.name(index),
        "confidence": round(float(p.confidence[index]), 4),
        "picture": thumbnail(split, index),
    }

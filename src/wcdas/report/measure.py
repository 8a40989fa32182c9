"""The contents of report.json: taken once from the model's test outputs, kept small."""

import base64
import io
from typing import Any, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from wcdas.data.dataset import ArrayImages, Dataset, Split, StoredImages
from wcdas.errors import InputError
from wcdas.evaluation.calibration import reliability_bins
from wcdas.evaluation.predictions import Predictions, own_logits
from wcdas.evaluation.scores import Summary, scores_of
from wcdas.groups import groups
from wcdas.heads import Head
from wcdas.heads.angular import ConcentrationHead
from wcdas.heads.experts import ExpertsHead


class Angles(TypedDict):
    own: dict[str, list[int]]
    other: dict[str, list[int]]
    mean_own: dict[str, float | None]
    mean_other: dict[str, float | None]


class Example(TypedDict):
    name: str
    confidence: float
    picture: str | None


class Confusion(TypedDict):
    true: int
    predicted: int
    images: int
    of: int
    cost: float
    examples: list[Example]
    rightly: Example | None


class Bin(TypedDict):
    lower: float
    upper: float
    images: int
    confidence: float | None
    accuracy: float | None


class Map(TypedDict):
    rows: list[list[int]]  # x, y, true class, predicted class
    of: int


class Measured(TypedDict):
    """report.json."""

    format: int
    rho: list[float] | None
    angles: Angles | None
    reliability: list[Bin]
    confidence: float | None
    confusions: list[Confusion]
    map: Map | None


FORMAT = 1
ANGLE_BINS = 36  # of five degrees
CONFUSIONS, EXAMPLES = 12, 4
SIDE, EXACT = 96, 40  # of a thumbnail; up to EXACT pixels nothing is lost
MAP_IMAGES, MAP_ITERATIONS, MAP_SIDE = 2_000, 400, 1_000
FEWEST = 5  # images on a map
SAME = 1e-6  # directions that differ by less in every coordinate


def measure(
    head: Head, features: Tensor, p: Predictions, dataset: Dataset, metrics: dict[str, Any]
) -> dict[str, Any]:
    """Return the contents of report.json, from the features and the calibrated predictions of the
    test images on the CPU and what `evaluate` made of them."""
    labels = dataset.test.labels.cpu()
    return {
        "format": FORMAT,
        "rho": class_concentrations(head),
        "angles": angle_histograms(head, features, labels, dataset.class_counts),
        "reliability": reliability_bins(p.confidence, p.predicted == labels),
        "confidence": float(p.confidence.mean()) if len(labels) else None,
        "confusions": costly_confusions(metrics["confusion"], dataset.test_counts, p, dataset.test),
        "map": feature_map(features, labels, p.predicted),
    }


@torch.no_grad()
def class_concentrations(head: Head) -> list[float] | None:
    """Return ρ of every class, the mean over experts; None for a head without."""
    heads = list(head.experts) if isinstance(head, ExpertsHead) else [head]
    found = [
        one.concentration.double().cpu() for one in heads if isinstance(one, ConcentrationHead)
    ]
    if len(found) < len(heads):
        return None
    return [round(value, 5) for value in torch.stack(found).mean(0).tolist()]


@torch.no_grad()
def angle_histograms(
    head: Head, features: Tensor, labels: Tensor, class_counts: Tensor
) -> dict[str, Any] | None:
    """Count images in bins of 5° by group, by the angle to the weight of their own class and by
    that to the nearest other.

    None where the head has no weight vector a class, or one class only.
    """
    classes = len(class_counts)
    if head.weight.shape != (classes, features.shape[1]) or classes < 2 or len(labels) == 0:
        return None
    y = labels.to(head.weight.device)

    def of_part(cosine: Tensor, rows: slice, classes: slice) -> Summary:
        index = torch.arange(classes.start, classes.stop, device=cosine.device)
        others = cosine.masked_fill(index == y[rows].unsqueeze(1), -torch.inf)
        return own_logits(cosine, y[rows], classes), others.amax(1)

    def merged(one: Summary, other: Summary) -> Summary:
        return tuple(torch.maximum(*pair) for pair in zip(one, other, strict=True))

    own, other = scores_of(head, features, lambda part, x: part.cosine(x)).summary(of_part, merged)
    masks = {name: mask[labels] for name, mask in groups(class_counts).items()}
    found: dict[str, Any] = {}
    for which, cosines in {"own": own, "other": other}.items():
        degrees = cosines.clamp(-1, 1).acos().rad2deg()
        if not degrees.isfinite().all():
            return None
        found[which] = {name: _histogram(degrees[mask]) for name, mask in masks.items()}
        found[f"mean_{which}"] = {
            name: round(float(degrees[mask].mean()), 2) if mask.any() else None
            for name, mask in masks.items()
        }
    return found


def _histogram(degrees: Tensor) -> list[int]:
    bins = (degrees / 180 * ANGLE_BINS).long().clamp(0, ANGLE_BINS - 1)
    return torch.bincount(bins, minlength=ANGLE_BINS).tolist()


def feature_map(features: Tensor, labels: Tensor, predicted: Tensor) -> dict[str, Any] | None:
    """Lay out the directions of at most 2,000 test features by t-SNE: rows (x, y, true, predicted).

    None of too few images, or where all point the same way, which t-SNE does not survive.
    """
    if len(labels) < FEWEST or not features.isfinite().all():
        return None
    # Slow to import.
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:MAP_IMAGES]
    x = F.normalize(features[chosen].float(), dim=1)
    if (x - x[0]).abs().max() < SAME:
        return None
    # Its threads wait for each other at every step, which takes long where the cores are shared.
    with threadpool_limits(1):
        points = TSNE(
            init="pca" if x.shape[1] > 1 else "random",
            perplexity=min(30.0, (len(chosen) - 1) / 3),
            max_iter=MAP_ITERATIONS,
            random_state=0,
        ).fit_transform(x.numpy())
    points -= points.min(0)
    at = torch.from_numpy(points / max(float(points.max()), 1e-12) * MAP_SIDE).round().long()
    rows = torch.cat([at, labels[chosen, None], predicted[chosen, None]], dim=1)
    return {"rows": rows.tolist(), "of": len(labels)}


def costly_confusions(
    confusion: list[list[int]], tested: Tensor, p: Predictions, split: Split
) -> list[dict[str, Any]]:
    """List pairs (true, taken for) by the points of balanced accuracy they cost, with examples.

    A confusion of n of the n_c test images of a class costs 100·n/(n_c·C) points, where C counts
    the classes with test images: an image of a class with few test images weighs more.
    """
    classes = int((tested > 0).sum())
    wrong = [(true, other, n) for true, other, n in confusion if true != other]
    wrong.sort(key=lambda pair: (-pair[2] / int(tested[pair[0]]), pair[0], pair[1]))
    found = []
    for true, other, n in wrong[:CONFUSIONS]:
        of_other, taken = split.labels == other, p.predicted == other
        # The class that was taken for, seen in one of its own images: rightly so where it was.
        rightly = _surest(p, of_other & taken) or _surest(p, of_other)
        found.append(
            {
                "true": true,
                "predicted": other,
                "images": n,
                "of": int(tested[true]),
                "cost": round(100 * n / (int(tested[true]) * classes), 4),
                "examples": [
                    _example(split, p, index)
                    for index in _surest(p, (split.labels == true) & taken)[:EXAMPLES]
                ],
                "rightly": _example(split, p, rightly[0]) if rightly else None,
            }
        )
    return found


def _surest(p: Predictions, mask: Tensor) -> list[int]:
    """The images of a mask, those the model was surest of first."""
    found = mask.nonzero()[:, 0]
    return found[p.confidence[found].argsort(descending=True, stable=True)].tolist()


def _example(split: Split, p: Predictions, index: int) -> dict[str, Any]:
    return {
        "name": split.name(index),
        "confidence": round(float(p.confidence[index]), 4),
        "picture": thumbnail(split, index),
    }


def thumbnail(split: Split, index: int) -> str | None:
    """Return a small image as a data URI; None of features, or where it cannot be read any more."""
    if isinstance(split, ArrayImages):
        image = to_pil_image(split.pixels[index])
    elif isinstance(split, StoredImages):
        try:
            image = split.load(index)
        except InputError:
            return None
    else:
        return None
    image.thumbnail((SIDE, SIDE))
    kind = "PNG" if max(image.size) <= EXACT else "JPEG"
    file = io.BytesIO()
    image.save(file, kind, **({"quality": 80} if kind == "JPEG" else {"optimize": True}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"

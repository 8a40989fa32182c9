"""Does a mirror image keep its meaning? The training images decide.

A quick classifier learns four fifths of them and judges the rest: as they are, mirrored, and as
they are after it learnt mirror images too. Mirror images are left out of training where learning
them makes it worse, where those of two classes are taken for each other (left and right), or where
most are not recognised any more (writing). Photographs pass: learning their mirror images helps.

The classifier is kernel ridge regression, k(x, y) = exp(−‖x − y‖²/s), on gradients and colours of
small images, every class with the same weight. Since k(x̄, ȳ) = k(x, y), learning the mirror images
x̄ too is the kernel k(x, y) + k(x, ȳ).
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as nn

from wcdas.data.dataset import ArrayImages, Dataset, Split, StoredImages
from wcdas.data.images import evaluation_square, to_pixels
from wcdas.data.inputs import fit
from wcdas.data.sources.assembly import in_threads

IMAGES, PER_CLASS, SMALLEST = 2000, 50, 3  # looked at: in all, of a class, in a class at least
SIDE = 32  # pixels
ORIENTATIONS = 8
CELLS = (4, 8)  # pixels, of the fine and the coarse gradients
COLOUR = 0.5  # weight beside the gradients
WIDTH, RIDGE = 0.5, 0.1  # of the kernel, by the median squared distance; of the regression
FOLDS = 5
SURE, VERY_SURE = 0.01, 0.001  # the chance of a verdict by accident
LOSS = 0.02  # of the images, that is worth a verdict
NAMED = 3  # pairs of classes


def decide_mirroring(dataset: Dataset) -> Dataset:
    """Return the dataset with an answer in `augment_flip`, and the reason in its description."""
    if dataset.augment_flip is not None:
        return dataset
    chosen, folds = choose(dataset.train.labels)
    labels = dataset.train.labels[chosen]
    if len(labels.unique()) < 2:
        flip, reason = True, f"too few classes with {SMALLEST} training images to tell"
    else:
        answers = trial(small_images(dataset.train, chosen), labels, folds)
        flip, reason = verdict(answers, dataset.class_names)
    told = f"{'on' if flip else 'off'}: {reason}"
    return replace(
        dataset, augment_flip=flip, description=dataset.description | {"mirroring": told}
    )


def without_verdict(dataset: Dataset) -> Dataset:
    """Return the dataset without what is said about mirroring, where no image is augmented."""
    kept = {key: value for key, value in dataset.description.items() if key != "mirroring"}
    return replace(dataset, description=kept)


def choose(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return images to look at, evenly spaced in their classes, and the fold of each.

    Neighbours share a fold, since frames of one scene lie side by side.
    """
    counts = labels.bincount()
    classes = counts.argsort(descending=True, stable=True)[: IMAGES // SMALLEST]
    classes = classes[counts[classes] >= SMALLEST]
    sizes = range(SMALLEST, PER_CLASS + 1)
    most = max(n for n in sizes if counts[classes].clamp(max=n).sum() <= IMAGES)
    chosen, folds = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
    for c in classes.sort().values:
        own = (labels == c).nonzero()[:, 0]
        place = torch.arange(min(len(own), most))
        chosen.append(own[place * len(own) // len(place)])
        folds.append(place * FOLDS // len(place))
    return torch.cat(chosen), torch.cat(folds)


def small_images(split: Split, chosen: Tensor) -> Tensor:
    """Return images at 32 × 32 pixels, uint8."""
    if isinstance(split, ArrayImages):
        return fit(split.pixels[chosen], SIDE, split.pixels.shape[1])
    assert isinstance(split, StoredImages)

    def load(index: int) -> Tensor:
        return to_pixels(evaluation_square(split.load(index, at_least=2 * SIDE), SIDE))

    return torch.stack(in_threads(load, chosen.tolist()))


class Answers(NamedTuple):
    """The classes of images, and what the classifier takes them for, int64 (N,) each."""

    labels: Tensor
    plain: Tensor
    mirrored: Tensor
    taught: Tensor  # as they are, after it learnt mirror images too


def trial(images: Tensor, labels: Tensor, folds: Tensor) -> Answers:
    """Let images (N, C, 32, 32) be judged by those of the other folds."""
    classes, own = labels.unique(return_inverse=True)
    features, mirrored = descriptors(torch.cat((images, images.flip(-1)))).chunk(2)
    distances, across = squared_distances(features, features), squared_distances(features, mirrored)
    scale = WIDTH * distances.median().clamp(min=1e-6)  # of images that are all the same
    kernel, mirrored_kernel = (distances / -scale).exp(), (across / -scale).exp()
    counts = own.bincount().double()
    ridge = RIDGE * (counts / counts.mean())[own]
    targets = nn.one_hot(own).double() - 1 / len(classes)
    plain, turned = held_out(kernel, ridge, targets, folds, [kernel, mirrored_kernel])
    both = kernel + mirrored_kernel
    (taught,) = held_out(both, ridge, targets, folds, [both])
    answers = (scores.argmax(dim=1) for scores in (plain, turned, taught))
    return Answers(labels, *(classes[answer] for answer in answers))


def held_out(
    kernel: Tensor, ridge: Tensor, targets: Tensor, folds: Tensor, asked: list[Tensor]
) -> list[Tensor]:
    """Return the scores by the images of other folds of those whose kernel rows are asked for."""
    scores = [torch.empty_like(targets) for _ in asked]
    for fold in folds.unique():
        out, others = folds == fold, folds != fold
        factor = torch.linalg.cholesky(kernel[others][:, others] + ridge[others].diag())
        weights = torch.cholesky_solve(targets[others], factor)
        for score, rows in zip(scores, asked, strict=True):
            score[out] = rows[out][:, others] @ weights
    return scores


def descriptors(images: Tensor) -> Tensor:
    """Return gradients on a fine and a coarse grid and colours, float64 (N, d).

    Those of a mirror image are the same numbers at other places.
    """
    weighed = []
    parts = zip(*(_described(part) for part in images.split(256)), strict=True)
    for part, weight in zip(parts, (0.5**0.5, 0.5**0.5, COLOUR), strict=True):
        x = torch.cat(part).double()
        x = x - x.mean(dim=0)
        weighed.append(weight * x / x.square().sum(dim=1).mean().sqrt().clamp(min=1e-6))
    return torch.cat(weighed, dim=1)


def _described(images: Tensor) -> list[Tensor]:
    """Histograms of oriented gradients, without their sign: N. Dalal, B. Triggs, 2005."""
    x = images.float() / 255
    grey = nn.pad(x.mean(dim=1, keepdim=True), [1] * 4, mode="replicate")
    right = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]
    down = grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    strength, turn = torch.hypot(right, down), torch.atan2(down, right) / math.pi * ORIENTATIONS
    lower = turn.floor()
    bins, share = lower.long(), turn - lower
    maps = x.new_zeros(len(x), ORIENTATIONS, SIDE, SIDE)
    maps.scatter_add_(1, bins % ORIENTATIONS, strength * (1 - share))
    maps.scatter_add_(1, (bins + 1) % ORIENTATIONS, strength * share)
    parts = []
    for cell in CELLS:
        cells = nn.avg_pool2d(maps, cell)
        energy = cells.square().sum(dim=1, keepdim=True)
        around = nn.avg_pool2d(energy, 3, stride=1, padding=1, count_include_pad=False)
        parts.append((cells / (around + 0.02**2).sqrt()).sqrt().flatten(1))
    return [*parts, nn.avg_pool2d(x, 8).flatten(1)]


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    return (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T).clamp(min=0)


def verdict(answers: Answers, class_names: list[str]) -> tuple[bool, str]:
    """Return whether mirror images are to be trained on, and why in plain words."""
    labels = answers.labels
    plain, mirrored, taught = (answer == labels for answer in answers[1:])
    images, classes = len(labels), len(labels.unique())
    numbers = (
        f"of {images:,} training images a quick test recognises {_percent(plain)}, mirrored "
        f"{_percent(mirrored)}, and {_percent(taught)} after learning mirrored ones too"
    )
    lost, won = int((plain & ~taught).sum()), int((taught & ~plain).sum())
    worse = _by_accident(lost, won) < SURE and lost - won > LOSS * images
    unlike, alike = int((plain & ~mirrored).sum()), int((mirrored & ~plain).sum())
    strange = _by_accident(unlike, alike) < VERY_SURE and _by_accident(won, lost) > SURE
    strange = strange and int(mirrored.sum()) < int(plain.sum()) / 2
    pairs = swapped(labels, answers.mirrored)
    exchanged = any(chance * classes * (classes - 1) / 2 < SURE for chance, _, _ in pairs)
    if worse or strange or exchanged:
        likely = [(class_names[a], class_names[b]) for chance, a, b in pairs if chance < SURE]
        named = ", ".join(f"{a!r} looks like {b!r}" for a, b in likely[:NAMED])
        more = f" and {len(likely) - NAMED} more pairs" if len(likely) > NAMED else ""
        return False, f"{numbers}; mirrored {named}{more}" if likely else numbers
    guessed = float(labels.bincount().max()) / images
    if at_least(int(plain.sum()), images, guessed) > SURE:
        return True, f"{numbers}, which is too little to tell"
    return True, numbers


def swapped(labels: Tensor, mirrored: Tensor) -> list[tuple[float, int, int]]:
    """Return pairs of classes whose mirror images are taken for each other, the surest first.

    Each with the chance of this by accident: if mirror images said nothing of their class, of both
    classes the same share would be taken for the second, whatever it is.
    """
    classes = int(max(labels.max(), mirrored.max())) + 1
    taken = (labels * classes + mirrored).bincount(minlength=classes**2).view(classes, classes)
    own, share = taken.diagonal(), np.linspace(0, 1, 101)
    away, found = taken > own[:, None], []
    for a, b in (away & away.T).triu().nonzero().tolist():
        to_b, to_a, of_a, of_b = (int(taken[at]) for at in ((a, b), (b, a), (a, a), (b, b)))
        both = at_least(to_b, to_b + of_a, share) * at_least(to_a, to_a + of_b, 1 - share)
        found.append((float(both.max()), a, b))
    return sorted(found)


def _by_accident(more: int, fewer: int) -> float:
    """Return the chance of so many or more, if either were as likely (McNemar's exact test)."""
    return float(at_least(more, more + fewer, 0.5))


def at_least(hits: int, tries: int, share: Any) -> Any:
    """Return the chance of so many hits or more, each with a chance of `share`."""
    from scipy.stats import binom  # slow to import

    return binom.sf(hits - 1, tries, share)


def _percent(right: Tensor) -> str:
    return f"{100 * right.double().mean():.0f} %"

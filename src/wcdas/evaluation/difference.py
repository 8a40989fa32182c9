"""The difference of two methods on the same test images, and how far chance alone may carry it."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wcdas.errors import InputError

CONFIDENCE = 0.95


class Difference(NamedTuple):
    """Accuracy of one less that of another, a mean over classes; with `CONFIDENCE` it is between
    mean − margin and mean + margin."""

    mean: float
    margin: float

    @property
    def is_clear(self) -> bool:
        """Whether chance alone would hardly carry it so far."""
        return abs(self.mean) > self.margin


def difference(one: Tensor, other: Tensor, labels: Tensor) -> Difference:
    """Compare two methods, seed by seed and image by image.

    Other seeds and other test images would both have given another difference. With d_si that of
    seed s on image i, in −1, 0, 1, and C classes of n_c images:

        var = var_s(mean_c mean_i d_si)/S + Σ_c var_i(mean_s d_si)/n_c / C²

    A part of what seeds and images have to do with each other is in both, which errs on the safe
    side. The margin is Student's, with the degrees of freedom of Welch and Satterthwaite; with one
    seed only the images are in it, and it is that of McNemar's test.

    Args:
        one: whether each image is right, (seeds, images).
        other: the same of another method with the same seeds.
        labels: the classes of the images.

    Example:
        >>> labels = torch.arange(200) % 2
        >>> one, other = torch.arange(200) < 150, torch.arange(200) < 100
        >>> found = difference(one[None], other[None], labels)
        >>> round(found.mean, 2), round(found.margin, 2), found.is_clear
        (0.25, 0.06, True)
    """
    from scipy.stats import t

    if one.shape != other.shape or one.dim() != 2 or labels.shape != one.shape[1:]:
        raise InputError(
            f"{tuple(one.shape)} and {tuple(other.shape)} results for {tuple(labels.shape)} "
            "labels; expected (seeds, images) of both methods, and a label for each image"
        )
    d = one.double() - other.double()
    seeds = len(d)
    present, place, n = labels.unique(return_inverse=True, return_counts=True)
    by_class = d.new_zeros(seeds, len(present)).index_add_(1, place, d) / n
    of_seeds, image = by_class.mean(1), d.mean(0)
    squares = (image - by_class.mean(0)[place]).square()
    variance = d.new_zeros(len(present)).index_add_(0, place, squares)
    # A class with one image takes the variance of the others.
    pooled = squares.sum() / max(int((n - 1).sum()), 1)
    variance = torch.where(n > 1, variance / (n - 1).clamp(min=1), pooled)
    by_images = float((variance / n).sum()) / len(present) ** 2
    by_seeds = float(of_seeds.var()) / seeds if seeds > 1 else 0.0
    freedom = (by_seeds + by_images) ** 2 / (by_seeds**2 / (seeds - 1)) if by_seeds else math.inf
    margin = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(by_seeds + by_images)
    return Difference(float(of_seeds.mean()), margin)

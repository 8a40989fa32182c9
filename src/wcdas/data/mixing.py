"""Mixup and CutMix: two images of a batch become one.

H. Zhang, M. Cisse, Y. Dauphin, D. Lopez-Paz, 2018, arXiv:1710.09412; S. Yun, D. Han, S. Oh,
S. Chun, J. Choe, Y. Yoo, 2019, arXiv:1905.04899.
"""

import numpy as np
from torch import Tensor

from wcdas.data import random
from wcdas.errors import InputError
from wcdas.targets import MixedLabels


def mix(
    images: Tensor, labels: Tensor, key: int, step: int, mixup: float = 0.0, cutmix: float = 0.0
) -> tuple[Tensor, Tensor | MixedLabels]:
    """Mix every image with a partner of the batch; λ ~ Beta(α, α), α = `mixup` or `cutmix`.

    With both above 0 a coin decides for each batch; with neither, nothing is changed. λ, the coin
    and the CutMix box depend on (key, step) alone. Of several processes each mixes within its own
    slice of the batch, with the same λ, so partners differ from those of a single process.
    """
    if mixup < 0 or cutmix < 0:
        raise InputError(f"mixup is {mixup} and cutmix {cutmix}; expected numbers of at least 0")
    if not mixup and not cutmix:
        return images, labels
    numbers = np.random.default_rng(random.stream(key, step, 0))
    cut = bool(numbers.random() < 0.5) if mixup and cutmix else cutmix > 0
    alpha = cutmix if cut else mixup
    lam = float(numbers.beta(alpha, alpha))
    partner = random.permutation(random.stream(key, step, 1), len(labels)).to(images.device)
    if not cut:
        mixed = images * lam + images[partner] * (1 - lam)
        return mixed, MixedLabels(labels, labels[partner.to(labels.device)], lam)
    if images.dim() != 4:
        raise InputError(f"CutMix needs images, not inputs of shape {tuple(images.shape)}")
    height, width = images.shape[-2:]
    top, bottom = _side(height, lam, numbers.random())
    left, right = _side(width, lam, numbers.random())
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images[partner, :, top:bottom, left:right]
    lam = 1 - (bottom - top) * (right - left) / (height * width)
    return mixed, MixedLabels(labels, labels[partner.to(labels.device)], lam)


def _side(length: int, lam: float, u: float) -> tuple[int, int]:
    """Where a box of √(1 − λ) of the length begins and ends, clipped, round a random centre."""
    centre, half = int(u * length), int(length * (1 - lam) ** 0.5) // 2
    return max(centre - half, 0), min(centre + half, length)

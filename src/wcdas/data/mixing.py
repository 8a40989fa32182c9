"""Mixup and CutMix: two images become one.

H. Zhang, M. Cisse, Y. Dauphin, D. Lopez-Paz, 2018, arXiv:1710.09412; S. Yun, D. Han, S. Oh,
S. Chun, J. Choe, Y. Yoo, 2019, arXiv:1905.04899.

With patches of other images, drawn class-balanced, rare classes are pasted on the backgrounds of
frequent ones: S. Park, Y. Hong, B. Heo, S. Yun, J. Y. Choi, "The Majority Can Help The Minority",
2022, arXiv:2112.00412 (CMO). The authors' code, naver-ai/cmo, cuts half of the batches
(`mixup_prob` 0.5) with λ ~ Beta(1, 1) (`beta` 1), draws patches with weight 1/n of their class
(`weighted_alpha` 1), that is every class as often, and augments them as the backgrounds. Its first
four epochs and the last three have no CutMix; here it rests as long at either end.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wcdas import rng
from wcdas.errors import InputError
from wcdas.targets import MixedLabels


class Mixing:
    """Mixes every image with a partner of the batch; λ ~ Beta(α, α), α = `mixup` or `cutmix`.

    `cut_share` of the batches, by the fall of a coin, are for CutMix, the others for mixup, where
    there is any; 0 is all, half of them beside mixup. λ, the coin and the CutMix box depend on
    (key, step) alone; those of an epoch are drawn at its beginning and lie on the device. Of
    several processes each mixes within its own slice of the batch, with the same λ, so partners
    differ from those of a single process. `shape` is that of a batch of inputs, `steps` are those
    of an epoch.
    """

    def __init__(
        self,
        mixup: float,
        cutmix: float,
        steps: int,
        shape: Sequence[int],
        device: torch.device | str = "cpu",
        cut_share: float = 0.0,
    ) -> None:
        if mixup < 0 or cutmix < 0:
            raise InputError(
                f"mixup is {mixup} and cutmix {cutmix}; expected numbers of at least 0"
            )
        if cutmix and len(shape) != 4:
            raise InputError(f"CutMix needs images, not inputs of shape {tuple(shape)}")
        self.mixup, self.cutmix, self.steps, self.shape = mixup, cutmix, steps, tuple(shape)
        self.cut_share = 0.0 if not cutmix else cut_share or (0.5 if mixup else 1.0)
        self.shares = torch.zeros(steps, dtype=torch.float32, device=device)
        self.partners = torch.zeros(steps, shape[0], dtype=torch.int64, device=device)
        self.boxes = torch.zeros(steps, 4, dtype=torch.int64, device=device)
        self.cuts = torch.zeros(steps, dtype=torch.bool, device=device)

    def begin(self, key: int, cuts: bool = True) -> None:
        """Draw the mixtures of an epoch; `cuts` says whether CutMix is in it."""
        plan = (self.shares, self.partners, self.boxes, self.cuts)
        cut_share = self.cut_share if cuts else 0.0
        drawn = (self._draw(key, step, cut_share) for step in range(self.steps))
        columns = zip(*drawn, strict=True)
        for kept, column in zip(plan, columns, strict=True):
            kept.copy_(torch.stack([torch.as_tensor(value) for value in column]))

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        step: Tensor,
        patches: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, MixedLabels]:
        """The mixed batch of a step, a tensor (1,); CutMix pastes the `patches`, as many inputs and
        their labels, where they are given."""
        partner = self.partners.index_select(0, step).squeeze(0)
        share = self.shares.index_select(0, step).squeeze(0)
        others, second, mixed = images[partner], labels[partner], images
        if self.mixup:
            mixed = images * share + others * (1 - share)
        if self.cutmix:
            cut = self.cuts.index_select(0, step)
            others, other_labels = (others, second) if patches is None else patches
            pasted = torch.where(self._inside(step), others, images)
            mixed, second = torch.where(cut, pasted, mixed), torch.where(cut, other_labels, second)
        return mixed, MixedLabels(labels, second, share)

    def _draw(self, key: int, step: int, cut_share: float) -> tuple[float, Tensor, list[int], bool]:
        """λ, partners, the box (top, bottom, left, right), and whether it is one of CutMix."""
        numbers = np.random.default_rng(rng.stream(key, step, 0))
        cut = bool(numbers.random() < cut_share) if 0 < cut_share < 1 else cut_share == 1
        alpha = self.cutmix if cut else self.mixup
        share = float(numbers.beta(alpha, alpha)) if alpha else 1.0
        partner = rng.permutation(rng.stream(key, step, 1), self.shape[0])
        if not cut:
            return share, partner, [0, 0, 0, 0], False
        height, width = self.shape[-2:]
        top, bottom = _side(height, share, numbers.random())
        left, right = _side(width, share, numbers.random())
        share = 1 - (bottom - top) * (right - left) / (height * width)
        return share, partner, [top, bottom, left, right], True

    def _inside(self, step: Tensor) -> Tensor:
        """Return where the box of a step is, (height, width)."""
        top, bottom, left, right = self.boxes.index_select(0, step).squeeze(0).unbind()
        y, x = (torch.arange(length, device=step.device) for length in self.shape[-2:])
        return ((y >= top) & (y < bottom))[:, None] & (x >= left) & (x < right)


def _side(length: int, lam: float, u: float) -> tuple[int, int]:
    """Return the ends of a box of √(1 − λ) of the length round a random centre, clipped."""
    centre, half = int(u * length), int(length * (1 - lam) ** 0.5) // 2
    return max(centre - half, 0), min(centre + half, length)

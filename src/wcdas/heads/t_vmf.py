"""t-vMF similarity (Kobayashi, CVPR 2021)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import check_positive
from wcdas.heads.angular import AngularHead, Scale, Shape, Start


class TvMFHead(AngularHead):
    """z_j = s·[(1 + cos θ_j) / (1 + κ(1 − cos θ_j)) − 1].

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        kappa: the concentration κ, or where it starts if it is trained.
        trainable: train one κ = softplus(w_κ) per class.
        scale: "trainable", or a number that stays fixed.
        scale_init: where a trainable s starts, in place of where `start` has it.
        start: of a trainable s: "auto", or "paper" for softplus(0) + 1 ≈ 1.69.

    Kobayashi, "T-vMF Similarity for Regularizing Intra-Class Feature Distribution", 2021.

    Example:
        >>> logits = TvMFHead(in_features=64, num_classes=100)(torch.randn(8, 64))
    """

    concentration_names: tuple[str, ...] = ("w_scale", "w_kappa")
    of_classes = ("weight", "w_kappa", "fixed_kappa")
    fixed_kappa: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        kappa: float = 16.0,
        trainable: bool = False,
        scale: Scale = "trainable",
        scale_init: float | None = None,
        start: Start = "auto",
    ) -> None:
        check_positive("kappa", kappa)
        shape = Shape((1 + 2 * kappa) / (1 + kappa) ** 2, 2 - 1 / (1 + kappa))
        super().__init__(in_features, num_classes, scale, scale_init, start, shape=shape)
        self.kappa_is_trainable = trainable
        if trainable:
            w_kappa = kappa + math.log(-math.expm1(-kappa))
            self.w_kappa = nn.Parameter(torch.full((num_classes,), w_kappa))
        else:
            fixed = torch.full((num_classes,), float(kappa))
            self.register_buffer("fixed_kappa", fixed, persistent=False)

    @property
    def concentration(self) -> Tensor:
        """κ of every class."""
        return F.softplus(self.w_kappa) if self.kappa_is_trainable else self.fixed_kappa

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        kappa = self.concentration.to(cosine.dtype)
        return (1 + cosine) / (1 + kappa * (1 - cosine)) - 1

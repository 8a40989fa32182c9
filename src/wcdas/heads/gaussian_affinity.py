"""Gaussian affinity between features and class prototypes."""

import torch
from torch import Tensor, nn

from wcdas.checks import check_positive, check_whole
from wcdas.heads.base import Head
from wcdas.heads.functional.arithmetic import matmul

# ‖x‖²/σ in the one public code for CIFAR, `cnn_cifar_affinity.py` of koshian2/affinity-loss: batch
# norm makes 256 features of unit variance, and σ is 90.
SQUARED_LENGTH = 256 / 90


class GaussianAffinityHead(Head):
    """z_j = −‖s·x − w_j‖²/σ, the logarithm of the affinity d_j = exp(−‖s·x − w_j‖²/σ).

    A class's probability is so its share of the affinities, d_j / Σ_k d_k. Of several prototypes
    of a class the nearest counts. The scale s brings features to lengths that suit σ, since far
    from every prototype the affinity has no slope.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        sigma: σ, the spread of a class.
        feature_scale: s. Left out, it is 1 until training fits it; the paper has none, and a σ for
            every network instead.
        prototypes: of a class.

    Hayat et al., "Gaussian Affinity for Max-Margin Class Imbalanced Learning", 2019
    (arXiv:1901.07711).

    Example:
        >>> head = GaussianAffinityHead(in_features=64, num_classes=100)
        >>> affinities = head(torch.randn(8, 64)).exp()
    """

    of_classes = ("weight", "others")
    feature_scale: Tensor
    scale_is_set: Tensor
    others: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        sigma: float = 10.0,
        feature_scale: float | None = None,
        prototypes: int = 1,
    ) -> None:
        super().__init__(in_features, num_classes)
        check_positive("sigma", sigma)
        if feature_scale is not None:
            check_positive("feature_scale", feature_scale)
        check_whole("prototypes", prototypes)
        self.sigma = sigma
        self.register_buffer("feature_scale", torch.tensor(float(feature_scale or 1)))
        self.register_buffer("scale_is_set", torch.tensor(feature_scale is not None))
        bound = in_features**-0.5  # as of `weight`, which is the first prototype of every class
        others = torch.empty(num_classes, prototypes - 1, in_features).uniform_(-bound, bound)
        self.register_parameter("others", nn.Parameter(others) if prototypes > 1 else None)

    @property
    def prototypes(self) -> Tensor:
        """The prototypes of every class, (num_classes, prototypes, in_features)."""
        first = self.weight.unsqueeze(1)
        return first if self.others is None else torch.cat([first, self.others], 1)

    @torch.no_grad()
    def fit_scale(self, squared_length: Tensor) -> None:
        """Bring features of this mean squared length to 256/90 ≈ 2.8 times σ.

        Only the first call counts, and none where a scale is given.
        """
        fitted = (SQUARED_LENGTH * self.sigma / squared_length.clamp_min(1e-12)).sqrt()
        self.feature_scale.copy_(torch.where(self.scale_is_set, self.feature_scale, fitted))
        self.scale_is_set.fill_(True)

    @torch.no_grad()
    def imprint(self, means: Tensor) -> None:
        """Put the first prototype of every class where its features are."""
        scaled = self.feature_scale * means.to(self.weight)
        self.weight.copy_(torch.where(scaled.any(dim=1, keepdim=True), scaled, self.weight))

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        x, w = self.feature_scale.to(x.dtype) * x, self.prototypes.to(x.dtype).flatten(0, 1)
        squares = x.square().sum(1, keepdim=True) + w.square().sum(1) - 2 * matmul(x, w.mT)
        nearest = squares.clamp_min(0).unflatten(1, (self.num_classes, -1)).amin(2)
        return -nearest / self.sigma

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, sigma={self.sigma:g}"

"""Wrapped Cauchy distributed angular softmax (Han, ICML 2023)."""

import math
from typing import Literal, get_args

from torch import Tensor

from wcdas.errors import unknown
from wcdas.heads.angular import ConcentrationHead, Init, Scale, Shape, Start, sigmoid
from wcdas.heads.functional import chunked, plain

Engine = Literal["auto", "plain", "chunked", "fused", "fused-fast"]
CHUNKED_FROM = 2_000  # classes; below, autograd is as fast and has second derivatives


class WCDASHead(ConcentrationHead):
    """z_j = s·(1 − ρ_j²) / (2π(1 + ρ_j² − 2ρ_j cos θ_j)), with a ρ of every class.

    It starts where it learns, at whatever width and class count; `start="paper"` is the paper's own
    start.

    `loss` takes the target column apart, so that its gradient stays exact at small angles and for
    ρ near 1. From 2,000 classes on it has first derivatives only, and needs one matrix of
    batch × classes instead of eight.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        init: where σ⁻¹(ρ) starts: a number, "he" or "xavier" (taken as a 1 × C matrix); by default
            −1, ρ ≈ 0.27, and 0 with the paper's start.
        scale: "trainable", or a number that stays fixed.
        scale_init: where a trainable s starts, in place of where `start` has it.
        per_class: one w_ρ for every class, or one for all of them.
        start: "auto", where the head learns, or "paper".
        engine: what computes `loss`: "plain" (autograd), "chunked", or on a GPU the kernels of
            "fused" and "fused-fast"; "auto" is plain below 2,000 classes, and chunked from there
            on. Predictions do not depend on it.

    Han, "Wrapped Cauchy Distributed Angular Softmax for Long-Tailed Visual Recognition", 2023.

    Example:
        >>> head = WCDASHead(in_features=64, num_classes=100)
        >>> logits = head(torch.randn(8, 64))
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        init: Init | None = None,
        scale: Scale = "trainable",
        scale_init: float | None = None,
        per_class: bool = True,
        start: Start = "auto",
        engine: Engine = "auto",
    ) -> None:
        if engine not in get_args(Engine):
            raise unknown("engine", str(engine), get_args(Engine))
        super().__init__(in_features, num_classes, init, scale, scale_init, per_class, start)
        self.engine = engine

    @staticmethod
    def shape(w_rho: float) -> Shape:
        rho, q = sigmoid(w_rho), sigmoid(-w_rho)
        right = 1 + rho**2
        slope = rho * q * (1 + rho) / (math.pi * right**2)
        return Shape(slope, slope * right / q**2)

    @staticmethod
    def spread(w_rho: float) -> float:
        """By Parseval: ∂f/∂ρ = Σ n ρⁿ⁻¹ cos nθ / π."""
        rho, q = sigmoid(w_rho), sigmoid(-w_rho)
        mean_square = (1 + rho**2) / (2 * (q * (1 + rho)) ** 3)
        return rho * q * math.sqrt(mean_square) / math.pi

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        return plain.density((1 - cosine).clamp_min(0), self._class_w_rho().to(cosine.dtype))

    def losses(
        self, x: Tensor, labels: Tensor, label_smoothing: float, log_prior: Tensor | None
    ) -> Tensor:
        weight, w_rho = self.weight.to(x.dtype), self._class_w_rho().to(x.dtype)
        given = x, weight, w_rho, self.scale.to(x.dtype), labels, label_smoothing, log_prior
        engine = self.engine
        if engine == "auto":
            engine = "plain" if self.num_classes < CHUNKED_FROM else "chunked"
        if engine == "plain":
            return plain.wcdas_losses(*given)
        return chunked.wcdas_losses(*given, engine)

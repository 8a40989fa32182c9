"""Heads with a margin on the angle to the own class, which acts on the target's cosine alone."""

import math
from typing import Any

import torch
from torch import Tensor

from wcdas.checks import check_positive, check_whole
from wcdas.heads.angular import AngularHead, Scale, Start
from wcdas.heads.base import Head


class MarginHead(Head):
    """A head with ψ(θ) in place of cos θ in the target's column, and nowhere without labels."""

    has_margin = True
    margin: float

    def target(self, cosine: Tensor) -> Tensor:
        """ψ(θ), the target's similarity."""
        raise NotImplementedError

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None:
            return cosine
        column = labels.unsqueeze(1)
        return cosine.scatter(1, column, self.target(cosine.gather(1, column)))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, margin={self.margin:g}"


class AMSoftmaxHead(MarginHead, AngularHead):
    """z_y = s·(cos θ_y − m), z_j = s·cos θ_j otherwise.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m, 0.35 in both papers.
        scale: s, 30 in Wang et al. (`prototxt/face_train_test.prototxt` of happynear/AMSoftmax), 64
            in CosFace; or "trainable".
        scale_init: where a trainable s starts, in place of where `start` has it.
        start: of a trainable s: "auto", or "paper" for softplus(0) + 1 ≈ 1.69.

    Wang et al., "Additive Margin Softmax for Face Verification", 2018 (arXiv:1801.05599);
    Wang et al., "CosFace", 2018 (arXiv:1801.09414).

    Example:
        >>> head = AMSoftmaxHead(in_features=64, num_classes=100)
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        margin: float = 0.35,
        scale: Scale = 30.0,
        scale_init: float | None = None,
        start: Start = "auto",
    ) -> None:
        super().__init__(in_features, num_classes, scale, scale_init, start)
        check_positive("margin", margin, at_most=2.0)
        self.margin = margin

    def target(self, cosine: Tensor) -> Tensor:
        return cosine - self.margin


class AnnealedMarginHead(MarginHead):
    """A margin that training can start without: (λ cos θ + ψ(θ)) / (1 + λ) in the target's column.

    λ is the buffer `annealing`, 0 unless training sets it; ψ is `whole_margin`.
    """

    annealing: Tensor

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.register_buffer("annealing", torch.tensor(0.0))

    def whole_margin(self, cosine: Tensor) -> Tensor:
        """ψ(θ) at λ = 0."""
        raise NotImplementedError

    def target(self, cosine: Tensor) -> Tensor:
        annealing = self.annealing.to(cosine.dtype)
        return (annealing * cosine + self.whole_margin(cosine)) / (1 + annealing)


class ArcFaceHead(AnnealedMarginHead, AngularHead):
    """z_y = s·cos(θ_y + m), z_j = s·cos θ_j otherwise.

    Where θ_y + m > π the cosine would rise again; there it is cos θ_y − m·sin m, as in the authors'
    public code (`recognition/arcface_torch/losses.py` of deepinsight/insightface) until December
    2022. Since then that code lets it rise, and takes the gradient of cos θ_y for its own. The
    buffer `annealing` holds the λ of (λ cos θ_y + cos(θ_y + m)) / (1 + λ), 0 unless training sets
    it.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m in radians, 0.5 in the paper and in the code.
        scale: s, 64 in the paper and in the code; or "trainable".
        scale_init: where a trainable s starts, in place of where `start` has it.
        start: of a trainable s: "auto", or "paper" for softplus(0) + 1 ≈ 1.69.

    Deng et al., "ArcFace: Additive Angular Margin Loss", 2019 (arXiv:1801.07698).

    Example:
        >>> head = ArcFaceHead(in_features=64, num_classes=100)
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        margin: float = 0.5,
        scale: Scale = 64.0,
        scale_init: float | None = None,
        start: Start = "auto",
    ) -> None:
        super().__init__(in_features, num_classes, scale, scale_init, start)
        check_positive("margin", margin, at_most=math.pi)
        self.margin = margin

    def whole_margin(self, cosine: Tensor) -> Tensor:
        m = self.margin
        tiny = torch.finfo(cosine.dtype).eps ** 2  # at cos θ = ±1 the root has no finite slope
        sine = (1 - cosine.square()).clamp_min(tiny).sqrt()
        shifted = cosine * math.cos(m) - sine * math.sin(m)
        return torch.where(cosine >= -math.cos(m), shifted, cosine - m * math.sin(m))


class MultiplicativeMarginHead(AnnealedMarginHead):
    """ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m], in place of the target's cos θ.

    m is the margin, a whole number; 1 is none, 4 the papers' largest.
    """

    margin: int

    def __init__(self, in_features: int, num_classes: int, margin: int = 4) -> None:
        super().__init__(in_features, num_classes)
        check_whole("margin", margin)
        self.margin = margin

    def whole_margin(self, cosine: Tensor) -> Tensor:
        knots = [math.cos(i * math.pi / self.margin) for i in range(1, self.margin)]
        k = sum((cosine.detach() <= knot).to(cosine.dtype) for knot in knots)
        sign = 1 - 2 * (k % 2)
        return sign * _cosine_of_multiple(cosine, self.margin) - 2 * k


def _cosine_of_multiple(cosine: Tensor, m: int) -> Tensor:
    """cos mθ as the Chebyshev polynomial T_m(cos θ)."""
    previous, current = torch.ones_like(cosine), cosine
    for _ in range(m - 1):
        previous, current = current, 2 * cosine * current - previous
    return current


class LSoftmaxHead(MultiplicativeMarginHead):
    """z_y = ‖x‖‖w_y‖ψ(θ_y), z_j = x·w_j otherwise; predicts with x·w.

    ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m]; the buffer `annealing` holds the λ of
    (λ cos θ + ψ(θ)) / (1 + λ), 0 unless training sets it.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m, a whole number of at least 1; in the authors' code 2 for CIFAR and 4 for MNIST
            (`myexamples` of wy1iu/LargeMargin_Softmax_Loss).

    Liu et al., "Large-Margin Softmax Loss for Convolutional Neural Networks", 2016
    (arXiv:1612.02295).

    Example:
        >>> head = LSoftmaxHead(in_features=64, num_classes=100)
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        x_norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        w_norm = torch.linalg.vector_norm(self.weight.to(x.dtype), dim=1)
        return x_norm * w_norm * self.similarity(self.cosine(x), labels)


class SphereFaceHead(MultiplicativeMarginHead):
    """z_y = ‖x‖ψ(θ_y), z_j = ‖x‖cos θ_j otherwise; predicts with ‖x‖cos θ.

    ψ(θ) = (−1)^k cos(mθ) − 2k for θ in [kπ/m, (k+1)π/m]; the buffer `annealing` holds the λ of
    (λ cos θ + ψ(θ)) / (1 + λ), 0 unless training sets it.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m, a whole number of at least 1; 4 in the paper and in the authors' code
            (`train/code/sphereface_model.prototxt` of wy1iu/sphereface).

    Liu et al., "SphereFace: Deep Hypersphere Embedding for Face Recognition", 2017
    (arXiv:1704.08063).

    Example:
        >>> head = SphereFaceHead(in_features=64, num_classes=100)
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        x_norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return x_norm * self.similarity(self.cosine(x), labels)

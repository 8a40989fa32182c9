"""ArcFace: an additive margin on the angle."""

import math

import torch
from torch import Tensor

from wcdas.checks import check_positive
from wcdas.heads.angular import AngularHead, Scale
from wcdas.heads.margin import AnnealedMarginHead
from wcdas.heads.start import Start


class ArcFaceHead(AnnealedMarginHead, AngularHead):
    """z_y = s·cos(θ_y + m), z_j = s·cos θ_j otherwise.

    Where θ_y + m > π the cosine would rise again; there it is cos θ_y − m·sin m, as is usual. The
    buffer `annealing` holds the λ of (λ cos θ_y + cos(θ_y + m)) / (1 + λ), 0 unless a trainer sets
    it.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m in radians, 0.5 in the paper.
        scale: s, 64 in the paper; or "trainable".
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

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, margin={self.margin:g}"

    def target(self, cosine: Tensor) -> Tensor:
        m = self.margin
        tiny = torch.finfo(cosine.dtype).eps ** 2  # at cos θ = ±1 the root has no finite slope
        sine = (1 - cosine.square()).clamp_min(tiny).sqrt()
        shifted = cosine * math.cos(m) - sine * math.sin(m)
        return torch.where(cosine >= -math.cos(m), shifted, cosine - m * math.sin(m))

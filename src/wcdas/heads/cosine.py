"""Angular softmax: the scaled cosine."""

from torch import Tensor

from wcdas.heads.angular import AngularHead, Scale
from wcdas.heads.start import Start


class CosineHead(AngularHead):
    """z_j = s·cos θ_j, the paper's Angular Softmax (its Equation 2).

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        scale: "trainable", or a number that stays fixed.
        scale_init: where a trainable s starts, in place of where `start` has it.
        start: of a trainable s: "auto", or "paper" for softplus(0) + 1 ≈ 1.69.

    Example:
        >>> logits = CosineHead(in_features=64, num_classes=100, scale=30.0)(torch.randn(8, 64))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        scale: Scale = "trainable",
        scale_init: float | None = None,
        start: Start = "auto",
    ) -> None:
        super().__init__(in_features, num_classes, scale, scale_init, start)

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        return cosine

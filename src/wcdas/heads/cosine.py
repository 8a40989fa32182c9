"""Angular softmax: the scaled cosine."""

from torch import Tensor

from wcdas.heads.angular import AngularHead


class CosineHead(AngularHead):
    """z_j = s·cos θ_j, the paper's Angular Softmax (its Equation 2).

    Example:
        >>> logits = CosineHead(in_features=64, num_classes=100, scale=30.0)(torch.randn(8, 64))
    """

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        return cosine

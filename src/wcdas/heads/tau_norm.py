"""τ-normalised classifier."""

from typing import Self

import torch
from torch import Tensor, nn

from wcdas.checks import check_from_zero
from wcdas.heads.linear import LinearHead, copy_linear


class TauNormHead(LinearHead):
    """z_j = x·w_j / ‖w_j‖^τ, a trained linear head with the norms of its classes levelled.

    τ = 0 is the linear head itself, τ = 1 gives every class the same norm.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        tau: τ; chosen on held-out images in the paper.
        bias: whether the linear head has one; it stays as it is. The paper trains without.

    Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", 2020
    (arXiv:1910.09217).

    Example:
        >>> head = TauNormHead.from_linear(LinearHead(64, 100, bias=False), tau=0.7)
        >>> logits = head(torch.randn(8, 64))
    """

    tau: Tensor

    def __init__(
        self, in_features: int, num_classes: int, tau: float = 1.0, bias: bool = False
    ) -> None:
        super().__init__(in_features, num_classes, bias)
        check_from_zero("tau", tau)
        self.register_buffer("tau", torch.tensor(float(tau)))

    @classmethod
    def from_linear(cls, linear: LinearHead | nn.Linear, tau: float = 1.0) -> Self:
        """The head for the weights of a trained classifier."""
        num_classes, in_features = linear.weight.shape
        head = cls(in_features, num_classes, tau, bias=linear.bias is not None)
        return copy_linear(linear, head)

    def class_weight(self, dtype: torch.dtype) -> Tensor:
        weight = self.weight.to(dtype)
        norm = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
        return weight / norm.masked_fill(norm == 0, 1) ** self.tau.to(dtype)

"""Learnable weight scaling."""

from typing import Self

import torch
from torch import Tensor, nn

from wcdas.heads.linear import LinearHead, copy_linear


class LWSHead(LinearHead):
    """z_j = f_j·(x·w_j), a trained linear head, frozen, with a learned scale for every class.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        bias: whether the linear head has one; it stays as it is. The paper trains without.

    Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", 2020
    (arXiv:1910.09217).

    Example:
        >>> head = LWSHead.from_linear(LinearHead(64, 100, bias=False))
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    def __init__(self, in_features: int, num_classes: int, bias: bool = False) -> None:
        super().__init__(in_features, num_classes, bias)
        self.requires_grad_(False)
        self.class_scale = nn.Parameter(torch.ones(num_classes))

    @classmethod
    def from_linear(cls, linear: LinearHead | nn.Linear) -> Self:
        """The head for the weights of a trained classifier."""
        num_classes, in_features = linear.weight.shape
        head = cls(in_features, num_classes, bias=linear.bias is not None)
        return copy_linear(linear, head)

    def class_weight(self, dtype: torch.dtype) -> Tensor:
        return self.class_scale.to(dtype).unsqueeze(1) * self.weight.to(dtype)

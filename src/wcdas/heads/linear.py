"""The plain linear classifier."""

import math
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.heads.base import Head


class LinearHead(Head):
    """z = W x + b, the same as `nn.Linear`.

    Example:
        >>> logits = LinearHead(in_features=64, num_classes=100)(torch.randn(8, 64))
    """

    def __init__(self, in_features: int, num_classes: int, bias: bool = True) -> None:
        super().__init__(in_features, num_classes)
        if bias:
            bound = 1 / math.sqrt(in_features)
            self.bias = nn.Parameter(torch.empty(num_classes).uniform_(-bound, bound))
        else:
            self.register_parameter("bias", None)

    def class_weight(self, dtype: torch.dtype) -> Tensor:
        """W, as the logits use it."""
        return self.weight.to(dtype)

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.class_weight(x.dtype), bias)


T = TypeVar("T", bound=LinearHead)


def copy_linear(linear: LinearHead | nn.Linear, head: T) -> T:
    """Give a head the weights of a trained classifier, as its logits use them."""
    weight = linear.weight
    if isinstance(linear, LinearHead):
        weight = linear.class_weight(weight.dtype)
    with torch.no_grad():
        head.weight.copy_(weight)
        if linear.bias is not None:
            head.bias.copy_(linear.bias)
    return head.to(linear.weight.device)

"""The linear classifier, and a trained one with its classes' weights rescaled."""

import math
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import check_from_zero
from wcdas.heads.base import Head


class LinearHead(Head):
    """z = W x + b, the same as `nn.Linear`.

    Example:
        >>> logits = LinearHead(in_features=64, num_classes=100)(torch.randn(8, 64))
    """

    of_classes: tuple[str, ...] = ("weight", "bias")

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

    def built_options(self) -> dict[str, Any]:
        return {"bias": self.bias is not None}


class RescaledHead(LinearHead):
    """A trained linear head with other lengths of its classes' weights."""

    needs_linear = True

    @classmethod
    def from_head(cls, trained: Head) -> Self:
        if isinstance(trained, LinearHead):
            return cls.from_linear(trained)
        return super().from_head(trained)

    @classmethod
    def from_linear(cls, linear: LinearHead | nn.Linear, *args: Any, **options: Any) -> Self:
        """The head for the weights of a trained classifier, as its logits use them."""
        num_classes, in_features = linear.weight.shape
        options["bias"] = linear.bias is not None
        head = cls(in_features, num_classes, *args, **options)
        weight = linear.weight
        if isinstance(linear, LinearHead):
            weight = linear.class_weight(weight.dtype)
        with torch.no_grad():
            head.weight.copy_(weight)
            if linear.bias is not None:
                head.bias.copy_(linear.bias)
        return head.to(linear.weight.device)


class LWSHead(RescaledHead):
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

    of_classes = ("weight", "bias", "class_scale")

    def __init__(self, in_features: int, num_classes: int, bias: bool = False) -> None:
        super().__init__(in_features, num_classes, bias)
        self.requires_grad_(False)
        self.class_scale = nn.Parameter(torch.ones(num_classes))

    def class_weight(self, dtype: torch.dtype) -> Tensor:
        return self.class_scale.to(dtype).unsqueeze(1) * self.weight.to(dtype)


class TauNormHead(RescaledHead):
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

    def class_weight(self, dtype: torch.dtype) -> Tensor:
        weight = self.weight.to(dtype)
        norm = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
        return weight / norm.masked_fill(norm == 0, 1) ** self.tau.to(dtype)

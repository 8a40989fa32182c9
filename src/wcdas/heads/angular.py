"""Heads on the angle between feature and class weight, with a scale s."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import check_positive
from wcdas.heads.base import Head

Scale = Literal["trainable"] | float


class AngularHead(Head):
    """z_j = s·similarity(cos θ_j), with s fixed or trainable as s = softplus(t) + 1.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        scale: "trainable", or a number that stays fixed.
        scale_init: where a trainable s starts, above 1; by default at softplus(0) + 1 ≈ 1.69.
    """

    fixed_scale: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        scale: Scale = "trainable",
        scale_init: float | None = None,
    ) -> None:
        super().__init__(in_features, num_classes)
        self.scale_is_trainable = scale == "trainable"
        if self.scale_is_trainable:
            self.w_scale = nn.Parameter(torch.tensor([_inverse_scale(scale_init)]))
        elif isinstance(scale, str):
            raise ValueError(f"scale is {scale!r}; expected 'trainable' or a number above 0")
        else:
            check_positive("scale", scale)
            if scale_init is not None:
                raise ValueError(
                    f"scale_init is {scale_init}, but scale is fixed at {scale}; "
                    "give scale='trainable' or leave scale_init out"
                )
            self.register_buffer("fixed_scale", torch.tensor([float(scale)]), persistent=False)

    @property
    def scale(self) -> Tensor:
        """s, a tensor without dimensions."""
        s = F.softplus(self.w_scale) + 1 if self.scale_is_trainable else self.fixed_scale
        return s.squeeze(0)

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        """What the scale multiplies, as a function of cos θ."""
        raise NotImplementedError

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        return self.scale.to(x.dtype) * self.similarity(self.cosine(x), labels)

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, scale={'trainable' if self.scale_is_trainable else 'fixed'}"
        )


def _inverse_scale(scale_init: float | None) -> float:
    """t with softplus(t) + 1 = scale_init."""
    if scale_init is None:
        return 0.0
    if not scale_init > 1:
        raise ValueError(f"scale_init is {scale_init}; expected above 1, for s = softplus(t) + 1")
    return scale_init - 1 + math.log(-math.expm1(1 - scale_init))

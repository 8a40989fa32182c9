"""Heads on the angle between feature and class weight, with a scale s."""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import check_positive
from wcdas.heads.base import Head
from wcdas.heads.start import COSINE, Shape, Start, check_start, scale_start

Scale = Literal["trainable"] | float


class AngularHead(Head):
    """z_j = s·similarity(cos θ_j), with s fixed or trainable as s = u·(softplus(k·w_s) + 1).

    A trainable s starts where the head learns; `wcdas.heads.start` has the equations. In the paper
    u = k = 1.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        scale: "trainable", or a number that stays fixed.
        scale_init: where a trainable s starts, in place of where `start` has it.
        start: "auto", or "paper" for the paper's, s = softplus(0) + 1 ≈ 1.69; `auto_scale` says
            where the first has s.
        shape: slope and rise of the similarity when training starts; those of cos θ by default.
    """

    concentration_names: tuple[str, ...] = ("w_scale",)
    fixed_scale: Tensor
    scale_units: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        scale: Scale = "trainable",
        scale_init: float | None = None,
        start: Start = "auto",
        *,
        shape: Shape = COSINE,
    ) -> None:
        super().__init__(in_features, num_classes)
        check_start(start)
        self.auto_scale = scale_start(self.in_features, self.num_classes, shape).scale
        self.register_load_state_dict_pre_hook(_as_before_units)
        self.scale_is_trainable = scale == "trainable"
        if not self.scale_is_trainable:
            _check_fixed(scale, scale_init)
            self.register_buffer("fixed_scale", torch.tensor([float(scale)]), persistent=False)
            return
        w_scale, units = 0.0, (1.0, 1.0)
        if start == "paper":
            w_scale = _inverse_scale(scale_init)
        else:
            if scale_init is not None:
                check_positive("scale_init", scale_init)
            begin = scale_start(self.in_features, self.num_classes, shape, scale_init)
            units = (begin.unit, begin.rate)
            with torch.no_grad():
                self.weight.mul_(math.sqrt(3) * begin.length)  # those of nn.Linear are 1/√3 long
        self.w_scale = nn.Parameter(torch.tensor([w_scale]))
        self.register_buffer("scale_units", torch.tensor(units))

    @property
    def scale(self) -> Tensor:
        """s, a tensor without dimensions."""
        if not self.scale_is_trainable:
            return self.fixed_scale.squeeze(0)
        u, k = self.scale_units
        return u * (F.softplus(k * self.w_scale.squeeze(0)) + 1)

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        """What the scale multiplies, as a function of cos θ."""
        raise NotImplementedError

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        return self.scale.to(x.dtype) * self.similarity(self.cosine(x), labels)

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, scale={'trainable' if self.scale_is_trainable else 'fixed'}"
        )


def _check_fixed(scale: Scale, scale_init: float | None) -> None:
    if isinstance(scale, str):
        raise ValueError(f"scale is {scale!r}; expected 'trainable' or a number above 0")
    check_positive("scale", scale)
    if scale_init is not None:
        raise ValueError(
            f"scale_init is {scale_init}, but scale is fixed at {scale}; "
            "give scale='trainable' or leave scale_init out"
        )


def _inverse_scale(scale_init: float | None) -> float:
    """t with softplus(t) + 1 = scale_init."""
    if scale_init is None:
        return 0.0
    if not scale_init > 1:
        raise ValueError(f"scale_init is {scale_init}; expected above 1, for s = softplus(t) + 1")
    return scale_init - 1 + math.log(-math.expm1(1 - scale_init))


def _as_before_units(head: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Weights that were stored before there were units have those of the paper."""
    for name in ("scale_units", "concentration_unit"):
        if hasattr(head, name):
            state.setdefault(f"{prefix}{name}", torch.ones_like(getattr(head, name)))

"""Heads on the angle between feature and class weight, with a scale s and concentrations ρ.

A head with a trainable scale starts so that it learns at other widths and rates, too.
Let f(cos θ) be what the scale s multiplies, f' its slope at a right angle and Δf = f(1) − f(0) its
rise from there to the class's own direction. Features and weights start at right angles, give or
take 1/√d, so g = s·f' over √d is the spread of the first logits, and s·Δf the most that they can
come to differ by. The start is that of `nn.Linear` on features of unit variance, with room enough
for C classes to be told apart with a probability of 1 − 1/C:

    g = max(√(d/3), 2 log C · f'/Δf),    s₀ = g / f'.

A weight of which only the direction counts turns by rate · g/‖w‖² for a gradient of 1. Its length
makes that the same at every width, that of s·cos θ with s = 30 and the weights of `nn.Linear`:

    ‖w‖² = g / 90.

What is trained beside the weights moves logits by about as much as it moves itself, whatever s is:

    s = u·(softplus(k·w_s) + 1),    ρ = σ(r·w_ρ).

u sets s₀ at w_s = 0, k lets w_s change s·Δf by its own step there, and r lets w_ρ change a logit by
its own step, root mean square over the circle. The paper's start is u = k = r = 1, w_s = w_ρ = 0,
and weights as `nn.Linear` has them. `benchmarks/head_start.py` compares the two.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import check_positive
from wcdas.errors import unknown
from wcdas.heads.base import Head

Scale = Literal["trainable"] | float
Init = float | Literal["he", "xavier"]
Start = Literal["auto", "paper"]
TURN = 90.0
AT_ZERO = math.log(2) + 1  # softplus(0) + 1
FIRST: dict[Start, float] = {"auto": -1.0, "paper": 0.0}  # where σ⁻¹(ρ) starts
FARTHEST = 6.0  # beyond, the start is that of ±6: a density so narrow has no slope to start on


class Shape(NamedTuple):
    """Slope f' of a similarity at a right angle, and its rise Δf from there to θ = 0."""

    slope: float
    rise: float


COSINE = Shape(slope=1.0, rise=1.0)


class AngularHead(Head):
    """z_j = s·similarity(cos θ_j), with s fixed or trainable as s = u·(softplus(k·w_s) + 1).

    A trainable s starts where the head learns, by the equations above. In the paper u = k = 1.

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
        if start not in ("auto", "paper"):
            raise unknown("start", str(start), ("auto", "paper"))
        needed = 2 * math.log(num_classes) * shape.slope / shape.rise
        self.auto_scale = max(math.sqrt(in_features / 3), needed) / shape.slope
        self.register_load_state_dict_pre_hook(_as_before_units)
        self.scale_is_trainable = scale == "trainable"
        if not self.scale_is_trainable:
            if isinstance(scale, str):
                raise ValueError(f"scale is {scale!r}; expected 'trainable' or a number above 0")
            check_positive("scale", scale)
            if scale_init is not None:
                raise ValueError(
                    f"scale_init is {scale_init}, but scale is fixed at {scale}; "
                    "give scale='trainable' or leave scale_init out"
                )
            self.register_buffer("fixed_scale", torch.tensor([float(scale)]), persistent=False)
            return
        w_scale, units = 0.0, (1.0, 1.0)
        if start == "paper":
            w_scale = _inverse_scale(scale_init)
        else:
            s = self.auto_scale if scale_init is None else scale_init
            check_positive("scale_init", s)
            units = (s / AT_ZERO, 2 * AT_ZERO / (s * shape.rise))
            length = math.sqrt(s * shape.slope / TURN)
            with torch.no_grad():
                self.weight.mul_(math.sqrt(3) * length)  # those of nn.Linear are 1/√3 long
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
        """The factor beside the scale, as a function of cos θ."""
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


def _as_before_units(head: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Weights that were stored before there were units have those of the paper."""
    for name in ("scale_units", "concentration_unit"):
        if hasattr(head, name):
            state.setdefault(f"{prefix}{name}", torch.ones_like(getattr(head, name)))


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


class ConcentrationHead(AngularHead):
    """An angular head with ρ = σ(r·w_ρ), one per class or one for all; in the paper r = 1.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        init: where σ⁻¹(ρ) starts: a number, "he" or "xavier" (taken as a 1 × C matrix); by default
            −1, ρ ≈ 0.27, and 0 with the paper's start.
        scale: "trainable", or a number that stays fixed.
        scale_init: where a trainable s starts, in place of where `start` has it.
        per_class: one w_ρ for every class, or one for all of them.
        start: "auto", where the head learns, or "paper".
    """

    concentration_names: tuple[str, ...] = ("w_scale", "w_rho")
    of_classes: tuple[str, ...] = ("weight", "w_rho")
    concentration_unit: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        init: Init | None = None,
        scale: Scale = "trainable",
        scale_init: float | None = None,
        per_class: bool = True,
        start: Start = "auto",
    ) -> None:
        init = FIRST.get(start, 0.0) if init is None else init
        first = _first(init)
        near = max(-FARTHEST, min(FARTHEST, first))
        super().__init__(in_features, num_classes, scale, scale_init, start, shape=self.shape(near))
        w_rho = torch.empty(1, num_classes if per_class else 1)
        if init == "he":
            nn.init.kaiming_normal_(w_rho)
        elif init == "xavier":
            nn.init.xavier_normal_(w_rho)
        else:
            nn.init.constant_(w_rho, first)
        s = self.scale.detach()
        unit = torch.ones_like(s) if start == "paper" else 1 / (s * self.spread(near))
        self.register_buffer("concentration_unit", unit)
        self.w_rho = nn.Parameter(w_rho.squeeze(0) / unit)

    @staticmethod
    def shape(w_rho: float) -> Shape:
        """Slope and rise of the density at ρ = σ(w_ρ)."""
        raise NotImplementedError

    @staticmethod
    def spread(w_rho: float) -> float:
        """The root mean square over the circle of the density's derivative by w_ρ."""
        raise NotImplementedError

    @property
    def concentration(self) -> Tensor:
        """ρ of every class."""
        return self._class_w_rho().sigmoid()

    def _class_w_rho(self) -> Tensor:
        """σ⁻¹(ρ) of every class."""
        return (self.concentration_unit * self.w_rho).expand(self.num_classes)


def _first(init: Init) -> float:
    """The number that w_ρ starts at, or around."""
    if init in ("he", "xavier"):
        return 0.0
    if not isinstance(init, (int, float)) or not math.isfinite(init):
        raise ValueError(f"init is {init!r}; expected a finite number, 'he' or 'xavier'")
    return float(init)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0

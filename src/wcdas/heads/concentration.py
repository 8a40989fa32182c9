"""Heads that give each class a trainable concentration ρ."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from wcdas.heads.angular import AngularHead, Scale
from wcdas.heads.start import Shape, Start

Init = float | Literal["he", "xavier"]
FIRST: dict[Start, float] = {"auto": -1.0, "paper": 0.0}  # where σ⁻¹(ρ) starts
FARTHEST = 6.0  # beyond, the start is that of ±6: a density so narrow has no slope to start on


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

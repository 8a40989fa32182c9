"""Heads that give each class a trainable concentration ρ = σ(w_ρ)."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from wcdas.heads.angular import AngularHead, Scale
from wcdas.names import unknown

Init = float | Literal["he", "xavier"]


class ConcentrationHead(AngularHead):
    """An angular head with w_ρ, one per class or one for all.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        init: where w_ρ starts: a number, "he" or "xavier" (w_ρ taken as a 1 × C matrix).
        scale: "trainable", or a number that stays fixed.
        scale_init: where a trainable s starts, above 1; by default at softplus(0) + 1 ≈ 1.69.
        per_class: one w_ρ for every class, or one for all of them.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        init: Init = 0.0,
        scale: Scale = "trainable",
        scale_init: float | None = None,
        per_class: bool = True,
    ) -> None:
        super().__init__(in_features, num_classes, scale, scale_init)
        w_rho = torch.empty(1, num_classes if per_class else 1)
        if init == "he":
            nn.init.kaiming_normal_(w_rho)
        elif init == "xavier":
            nn.init.xavier_normal_(w_rho)
        elif isinstance(init, str):
            raise unknown("init", init, ("he", "xavier"))
        elif not math.isfinite(init):
            raise ValueError(f"init is {init}; expected a finite number, 'he' or 'xavier'")
        else:
            nn.init.constant_(w_rho, init)
        self.w_rho = nn.Parameter(w_rho.squeeze(0))

    @property
    def concentration(self) -> Tensor:
        """ρ of every class."""
        return self._class_w_rho().sigmoid()

    def _class_w_rho(self) -> Tensor:
        return self.w_rho.expand(self.num_classes)

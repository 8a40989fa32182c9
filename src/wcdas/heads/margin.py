"""Margins act on the target's cosine alone."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from wcdas.heads.base import Head


def with_margin(
    cosine: Tensor, labels: Tensor | None, margin: Callable[[Tensor], Tensor]
) -> Tensor:
    """cos θ_j, with margin(cos θ_y) in the target's column; unchanged without labels."""
    if labels is None:
        return cosine
    column = labels.unsqueeze(1)
    return cosine.scatter(1, column, margin(cosine.gather(1, column)))


class AnnealedMarginHead(Head):
    """A margin that training can start without: (λ cos θ + ψ(θ)) / (1 + λ) in the target's column.

    λ is the buffer `annealing`, 0 unless a trainer sets it; ψ is `target`.
    """

    has_margin = True
    annealing: Tensor

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.register_buffer("annealing", torch.tensor(0.0))

    def target(self, cosine: Tensor) -> Tensor:
        """ψ(θ), the target's similarity with the whole margin."""
        raise NotImplementedError

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        annealing = self.annealing.to(cosine.dtype)
        return with_margin(
            cosine, labels, lambda c: (annealing * c + self.target(c)) / (1 + annealing)
        )

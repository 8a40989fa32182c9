"""Margins act on the target's cosine alone."""

from collections.abc import Callable

from torch import Tensor


def with_margin(
    cosine: Tensor, labels: Tensor | None, margin: Callable[[Tensor], Tensor]
) -> Tensor:
    """cos θ_j, with margin(cos θ_y) in the target's column; unchanged without labels."""
    if labels is None:
        return cosine
    column = labels.unsqueeze(1)
    return cosine.scatter(1, column, margin(cosine.gather(1, column)))

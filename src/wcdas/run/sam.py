"""Sharpness-aware minimisation: a step takes the gradient of where the loss is worst nearby.

P. Foret, A. Kleiner, H. Mobahi, B. Neyshabur, "Sharpness-Aware Minimization for Efficiently
Improving Generalization", 2021 (arXiv:2010.01412), equations 2 and 3 with p = 2:

    w ← w − η ∇L(w + ε),    ε = ρ ∇L(w)/‖∇L(w)‖.

The second pass is the first one once more, at w + ε: on the same images, from the same state, and
nothing of it stays but its gradient. Running statistics, queues and memories are those of the first
pass. What a layer draws (dropout, stochastic depth) it draws anew.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

TINY = 1e-12  # of a norm that is 0, since nothing is left to learn


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors as they are now."""
    return [tensor.detach().clone() for tensor in tensors]


@contextmanager
def second_pass(
    parameters: Sequence[Tensor],
    state: list[Tensor],
    before: list[Tensor],
    norm: Tensor,
    rho: float,
) -> Iterator[None]:
    """Inside, the parameters are at w + ε and the state as before the first pass; behind it the
    parameters are at w again, to the last bit, and the state as behind the first pass.

    Args:
        parameters: w, of which those move that have a gradient.
        state: what a pass changes beside it.
        before: copies of it, from before the first pass.
        norm: ‖∇L(w)‖, a tensor ().
        rho: ρ.
    """
    w, share = [p.detach() for p in parameters if p.grad is not None], rho / norm.clamp_min(TINY)
    kept, after = copies(w), copies(state)
    # The gradient is named nowhere, so that its memory is free for the second one.
    torch._foreach_add_(
        w, torch._foreach_mul([p.grad for p in parameters if p.grad is not None], share)
    )
    torch._foreach_copy_(state, before)
    try:
        yield
    finally:
        torch._foreach_copy_(w, kept)
        torch._foreach_copy_(state, after)

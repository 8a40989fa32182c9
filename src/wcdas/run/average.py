"""A running mean of a model's weights."""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """θ̄ ← d·θ̄ + (1 − d)·θ after every step, from the weights after the first; buffers likewise.

    Whether a step is the first is known on the device alone, so that nothing waits for it.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.module, self.decay = model, copy.deepcopy(model), decay
        self.count = torch.zeros((), device=next(model.parameters()).device)
        own, others = ([*m.parameters(), *m.buffers()] for m in (self.module, model))
        pairs = [(a.detach(), b.detach()) for a, b in zip(own, others, strict=True)]
        self.blended = [(a, b) for a, b in pairs if a.is_floating_point()]
        self.copied = [(a, b) for a, b in pairs if not a.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        share = torch.where(self.count > 0, 1 - self.decay, 1.0)
        own: list[Tensor] = [a for a, _ in self.blended]
        way = torch._foreach_sub([b for _, b in self.blended], own)
        torch._foreach_mul_(way, share)
        torch._foreach_add_(own, way)
        for a, b in self.copied:
            a.copy_(b)
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"module": self.module.state_dict(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.count.copy_(state["count"])

"""SGD with a weight decay of its own for concentrations and scale, and a mean of the weights."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from wcdas.heads import Head
from wcdas.methods.classifier import Classifier
from wcdas.run.spec import Stage


def create_optimizer(model: Classifier, stage: Stage) -> torch.optim.SGD:
    trained: nn.Module = model.head if stage.trains == "classifier" else model
    apart = {
        parameter
        for head in trained.modules()
        if isinstance(head, Head)
        for name, parameter in head.named_parameters(recurse=False)
        if name in head.concentration_names
    }
    learning = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    weights = [parameter for parameter in learning if parameter not in apart]
    concentrations = [parameter for parameter in learning if parameter in apart]
    own_decay = stage.concentration_weight_decay
    groups = [
        {"params": weights, "weight_decay": stage.weight_decay},
        {
            "params": concentrations,
            "weight_decay": stage.weight_decay if own_decay < 0 else own_decay,
        },
    ]
    optimizer = torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=stage.lr,
        momentum=stage.momentum,
        nesterov=stage.nesterov,
        fused=all(parameter.is_cuda for parameter in trained.parameters()),
    )
    if stage.momentum:  # a momentum of 0 steps as none does, and the first step is like the others
        for parameter in (*weights, *concentrations):
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


class WeightAverage:
    """θ̄ ← d·θ̄ + (1 − d)·θ after every step, from the weights after the first; buffers likewise.

    Whether a step is the first is known on the device alone, so that a CUDA graph can hold it;
    PyTorch's own `AveragedModel` looks at the number of steps, and would have to wait for it.
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

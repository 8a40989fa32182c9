"""SGD or AdamW with rates by layer, a weight decay of its own for concentrations and scale, and a
mean of the weights."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wcdas.heads import Head
from wcdas.methods.classifier import Classifier
from wcdas.run.spec import Stage


class Kind(NamedTuple):
    """What the parameters of a group have in common: the rate, in multiples of the stage's, and the
    weight decay."""

    lr_scale: float
    weight_decay: float
    concentration: bool


def create_optimizer(model: Classifier, stage: Stage) -> torch.optim.Optimizer:
    """Build the optimizer of what a stage trains; a group's `lr_scale` multiplies its rate."""
    groups: dict[Kind, list[nn.Parameter]] = {}
    for parameter, kind in _kinds(model, stage):
        groups.setdefault(kind, []).append(parameter)
    parts = [kind._asdict() | {"params": parameters} for kind, parameters in groups.items()]
    learning = [parameter for parameters in groups.values() for parameter in parameters]
    fused = all(parameter.is_cuda for parameter in learning)
    # The state stands from the beginning, so that the first step is like the others.
    if stage.algorithm == "adamw":
        adamw = torch.optim.AdamW(
            parts, lr=stage.lr, betas=(stage.momentum, 0.999), fused=fused, capturable=fused
        )
        for p in learning:
            step = torch.zeros((), device=p.device if fused else "cpu")
            moments = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
            adamw.state[p] = {"step": step} | moments
        return adamw
    sgd = torch.optim.SGD(
        parts, lr=stage.lr, momentum=stage.momentum, nesterov=stage.nesterov, fused=fused
    )
    if stage.momentum:  # a momentum of 0 steps as none does
        for p in learning:
            sgd.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return sgd


def _kinds(model: Classifier, stage: Stage) -> Iterator[tuple[nn.Parameter, Kind]]:
    """Yield every parameter that learns, with its group."""
    trained: nn.Module = model.head if stage.trains == "classifier" else model
    apart = {
        parameter
        for head in trained.modules()
        if isinstance(head, Head)
        for name, parameter in head.named_parameters(recurse=False)
        if name in head.concentration_names
    }
    layers = model.backbone.parameters_by_layer()
    scales = {
        parameter: stage.layer_decay**behind
        for behind, layer in enumerate(reversed(layers))
        for parameter in layer
    }
    own_decay, spared = stage.concentration_weight_decay, _spared(model.backbone)
    for parameter in trained.parameters():
        if not parameter.requires_grad:
            continue
        # AdamW leaves norms, biases and positions alone, as timm does.
        decays = stage.algorithm == "sgd" or (parameter.ndim > 1 and parameter not in spared)
        decay = stage.weight_decay if decays else 0.0
        if parameter in apart and own_decay >= 0:
            decay = own_decay
        yield parameter, Kind(scales.get(parameter, stage.head_lr), decay, parameter in apart)


def _spared(backbone: nn.Module) -> set[nn.Parameter]:
    """What a network of timm says is not to decay, such as the positions of a transformer."""
    return {
        parameter
        for module in backbone.modules()
        if (names := getattr(module, "no_weight_decay", None)) is not None
        for name, parameter in module.named_parameters()
        if name in names()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Go on from a state, perhaps of another kind of device, with the kernels of this one."""
    own = [
        {key: group[key] for key in ("fused", "capturable") if key in group}
        for group in optimizer.param_groups
    ]
    groups = [
        {"lr_scale": 1.0} | given | here  # older checkpoints have one rate
        for given, here in zip(state["param_groups"], own, strict=True)
    ]
    optimizer.load_state_dict(state | {"param_groups": groups})


class WeightAverage:
    """θ̄ ← d·θ̄ + (1 − d)·θ after every step, from the weights after the first; buffers likewise.

    After t steps d is min(decay, (1 + t)/(10 + t)), so that few steps are averaged over few. Their
    number is known on the device alone, so that a CUDA graph can hold it; PyTorch's own
    `AveragedModel` looks at it, and would have to wait.
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
        share = (9 / (10 + self.count)).clamp(min=1 - self.decay)
        share = torch.where(self.count > 0, share, 1.0)
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

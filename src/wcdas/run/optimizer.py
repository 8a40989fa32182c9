"""SGD or AdamW with rates by layer, a weight decay of its own for concentrations and scale, and a
mean of the weights."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from timm.models import group_parameters
from torch import Tensor, nn

from wcdas.backbones import Backbone
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
    scales = _scales(model.backbone, stage.layer_decay)
    own_decay = stage.concentration_weight_decay
    for parameter in trained.parameters():
        if not parameter.requires_grad:
            continue
        # AdamW leaves norms and biases alone, as timm does.
        decays = stage.algorithm == "sgd" or parameter.ndim > 1
        decay = stage.weight_decay if decays else 0.0
        if parameter in apart and own_decay >= 0:
            decay = own_decay
        yield parameter, Kind(scales.get(parameter, stage.head_lr), decay, parameter in apart)


def _scales(backbone: Backbone, layer_decay: float) -> dict[nn.Parameter, float]:
    """The rate of each layer of a backbone: `layer_decay` to the number of layers behind it."""
    network: Any = getattr(backbone, "network", backbone)
    named = {name: p for name, p in network.named_parameters() if not name.startswith("neck.")}
    if layer_decay == 1:
        return dict.fromkeys(named.values(), 1.0)
    if hasattr(network, "group_matcher"):
        depths = group_parameters(network, network.group_matcher(coarse=False), reverse=True)
    else:  # a layer of our own ResNets is a convolution and the two vectors of a batch norm
        depths = {name: i // 3 for i, name in enumerate(named)}
    last = max(depths[name] for name in named)
    return {p: layer_decay ** (last - depths[name]) for name, p in named.items()}


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

"""The shared parts of methods that contrast images: a projection, and momentum contrast.

Keys come from an encoder that follows the trained one, and a queue keeps them: K. He et al.,
"Momentum Contrast for Unsupervised Visual Representation Learning", 2020 (arXiv:1911.05722).
"""

import copy
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone, Identity
from wcdas.errors import InputError
from wcdas.heads.functional.arithmetic import full_precision, unit
from wcdas.methods.method import Parts
from wcdas.processes import of_all

EMPTY = -1  # the label of a place in the queue that no key has taken yet


def projection(
    in_features: int, out_features: int, batch_norm: bool = False, hidden: int | None = None
) -> nn.Sequential:
    """Features → embeddings: a perceptron with one hidden layer, as wide as the features unless
    `hidden` says otherwise."""
    width = in_features if hidden is None else hidden
    norm = [nn.BatchNorm1d(width)] if batch_norm else []
    first, last = nn.Linear(in_features, width), nn.Linear(width, out_features)
    return nn.Sequential(first, *norm, nn.ReLU(), last)


def check_backbone(parts: Parts, method: str) -> None:
    """Contrasting images trains the backbone; there has to be one."""
    if isinstance(parts.backbone, Identity):
        raise InputError(
            f"{method} trains the features, but here they are given; take images without --frozen, "
            "or another method, such as wcdas"
        )


class KeyEncoder(nn.Module):
    """θ_k ← m·θ_k + (1 − m)·θ_q: a copy of backbone and projection that no gradient reaches.

    Its batch norm takes the statistics of the keys' own batch, of every process's slice where there
    are several. Batches are not shuffled between processes: on a single one that changes nothing.
    """

    def __init__(self, backbone: Backbone, projection: nn.Module, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.backbone = copy.deepcopy(backbone).requires_grad_(False)
        self.projection = copy.deepcopy(projection).requires_grad_(False)

    @torch.no_grad()
    def follow(self, queries: Iterable[Tensor]) -> None:
        """One step towards the parameters of backbone and projection, in their order."""
        keys: list[Tensor] = list(self.parameters())
        torch._foreach_mul_(keys, self.momentum)
        torch._foreach_add_(keys, list(queries), alpha=1 - self.momentum)

    @torch.no_grad()
    def forward(self, inputs: Tensor, precision: torch.dtype) -> Tensor:
        """The keys of all processes' inputs, of unit length; `precision` is the backbone's."""
        half = precision in (torch.bfloat16, torch.float16)
        with torch.autocast(inputs.device.type, precision if half else None, enabled=half):
            features = self.backbone(inputs)
        return unit(self.projection(full_precision(of_all(features))))[0]


class Queue(nn.Module):
    """The last keys and their labels, first in, first out.

    `position` is where the next key goes: a tensor, so that nothing waits for the device.
    """

    keys: Tensor
    labels: Tensor
    position: Tensor

    def __init__(self, length: int, features: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(length, features))
        self.register_buffer("labels", torch.full((length,), EMPTY))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, keys: Tensor, labels: Tensor) -> None:
        """Let keys in over the oldest ones; of more than it holds, the last."""
        length = len(self.labels)
        skipped = max(0, len(keys) - length)
        places = torch.arange(skipped, len(keys), device=keys.device)
        places = (self.position + places) % length
        self.keys.index_copy_(0, places, keys[skipped:].to(self.keys.dtype))
        self.labels.index_copy_(0, places, labels[skipped:])
        self.position.copy_((self.position + len(keys)) % length)


class MomentumContrast(nn.Module):
    """The projection of the queries, the encoder of the keys, and the queue."""

    def __init__(
        self, backbone: Backbone, projection: nn.Sequential, momentum: float, length: int
    ) -> None:
        super().__init__()
        self.projection = projection
        self.encoder = KeyEncoder(backbone, projection, momentum)
        self.queue = Queue(length, cast(nn.Linear, projection[-1]).out_features)

    def queries(self, features: Tensor) -> Tensor:
        return unit(self.projection(full_precision(features)))[0]

    def keys(self, backbone: nn.Module, inputs: Tensor, precision: torch.dtype) -> Tensor:
        """The keys of a step, once the encoder has followed."""
        self.encoder.follow([*backbone.parameters(), *self.projection.parameters()])
        return self.encoder(inputs, precision)

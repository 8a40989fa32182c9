"""The WCDAS loss with the classes spread over processes.

Every process has some of the classes and some of the samples. The features are gathered, each
process computes the parts of its own classes for all samples, and three numbers a sample and
process are what is exchanged of the logits. All processes need as many samples.

Gradients are those of the mean over the processes of what each computes, as DistributedDataParallel
forms it for the backbone.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from wcdas.kernels import chunked


def wcdas_losses(
    features: Tensor,
    weight: Tensor,
    w_rho: Tensor,
    scale: Tensor,
    labels: Tensor,
    first: int,
    num_classes: int,
    label_smoothing: float = 0.0,
    log_prior: Tensor | None = None,
) -> Tensor:
    """The losses of this process's samples over the classes of all processes.

    Args:
        features: (batch, in_features), of this process's samples.
        weight: (own classes, in_features).
        w_rho: (own classes,).
        scale: s, the same on every process.
        labels: (batch,), among all classes.
        first: the first of the own classes, which are consecutive.
        num_classes: of all processes.
        label_smoothing: ε.
        log_prior: (own classes,).
    """
    batch, rank = len(labels), dist.get_rank()
    own = of_all(labels) - first
    own = torch.where((own >= 0) & (own < len(weight)), own, -1)
    here = chunked.of_classes(of_all(features), weight, w_rho, scale, own, log_prior)
    negatives, target, total = of_all(torch.stack(here)[None]).unbind(1)
    parts = chunked.Parts(negatives.logsumexp(0), target.sum(0), total.sum(0))
    return parts.losses(num_classes, label_smoothing)[rank * batch : (rank + 1) * batch]


def of_all(rows: Tensor) -> Tensor:
    """The rows of all processes; a gradient goes back to the process that a row came from."""
    gathered: Tensor = _Gathered.apply(rows)
    return gathered


class _Gathered(torch.autograd.Function):
    """As in `torch.distributed.nn`, which keeps the process group alive beyond its end."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient)
        return gradient.tensor_split(dist.get_world_size())[dist.get_rank()]


def joined(rows: Tensor, sizes: list[int]) -> Tensor:
    """The rows of all processes, of which each has as many as `sizes` says."""
    padded = F.pad(rows, (0, 0) * (rows.dim() - 1) + (0, max(sizes) - len(rows)))
    parts = zip(of_all(padded[None]).unbind(0), sizes, strict=True)
    return torch.cat([part[:size] for part, size in parts])


def of_the_mean(parameter: Tensor, *, shared: bool) -> Tensor:
    """A parameter whose gradient is that of the mean over the processes.

    Args:
        parameter: of the classes that this process has.
        shared: all processes have it alike, and each sees a part of its gradient.
    """
    result: Tensor = _OfTheMean.apply(parameter, shared)
    return result


class _OfTheMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, shared: bool) -> Tensor:
        ctx.shared = shared
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if ctx.shared:
            gradient = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(gradient)
        return gradient / dist.get_world_size(), None

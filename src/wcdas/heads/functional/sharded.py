"""The WCDAS loss with the classes spread over processes.

Every process has some of the classes and some of the samples. The features are gathered, each
process computes the parts of its own classes for all samples, and three numbers a sample and
process are what is exchanged of the logits. All processes need as many samples.

Gradients are those of the mean over the processes of what each computes, as DistributedDataParallel
forms it for the backbone.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from wcdas.heads.functional import chunked
from wcdas.processes import of_all


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

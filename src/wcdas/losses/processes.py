"""Statistics of a batch that several processes hold in parts."""

import torch.distributed as dist
from torch import Tensor


def count() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def total(values: Tensor) -> Tensor:
    """The sum over all processes; the values themselves where there is one."""
    if count() == 1:
        return values
    values = values.detach().clone()
    dist.all_reduce(values)
    return values


def mean(values: Tensor) -> Tensor:
    """The mean over all processes; the values themselves where there is one."""
    return values if count() == 1 else total(values) / count()

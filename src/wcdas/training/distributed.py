"""One process, or one of several started by torchrun."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wcdas.errors import InputError


@dataclass(frozen=True)
class Ranks:
    """This process's place among all."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """Join the processes torchrun started, or be the only one."""
    chosen = choose_device(device)
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(0, 1, chosen)
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), chosen)
    finally:
        dist.destroy_process_group()


def choose_device(name: str) -> torch.device:
    """The device a user named; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device is {name!r}; expected auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device is {name!r}; expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device is {name!r}, but no GPU is available; use --device cpu")
    return device


def gather(rows: Tensor, world: int) -> Tensor:
    """The rows of all ranks, joined; ranks may have different numbers of rows."""
    if world == 1:
        return rows
    device = rows.device if dist.get_backend() == "nccl" else torch.device("cpu")
    rows = rows.to(device)
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([len(rows)], device=device))
    longest = max(int(count) for count in counts)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: len(rows)] = rows
    parts = [torch.zeros_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])


def share_buffers(module: nn.Module, world: int) -> None:
    """Give every rank the buffers of rank 0: each has its own statistics of a batch norm."""
    if world > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, 0)


def total(values: Tensor, world: int) -> Tensor:
    """The sum of a tensor over all ranks."""
    if world > 1:
        dist.all_reduce(values)
    return values


def largest(value: Tensor, world: int) -> Tensor:
    """The largest of a number over all ranks."""
    if world > 1:
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return value

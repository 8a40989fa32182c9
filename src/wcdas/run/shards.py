"""Tensors of which every process has a part of the rows, in checkpoints.

They are written by `torch.distributed.checkpoint` as safetensors files, each process its rows, and
are read by any number of processes.
"""

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from wcdas import processes
from wcdas.files import digest

MARK = "rows of all processes"  # in the place of a tensor, with its name and its whole shape


class Rows(NamedTuple):
    """This process's rows of a tensor of `total` rows, as `processes.shares` deals them out."""

    own: Tensor
    total: int


def set_apart(state: Any, found: dict[str, Rows], name: str = "") -> Any:
    """Return a state with a mark in the place of every `Rows`, which are put into `found`."""
    if isinstance(state, Rows):
        found[name] = state
        shape = [state.total, *state.own.shape[1:]]
        return {MARK: name, "shape": shape, "dtype": str(state.own.dtype).removeprefix("torch.")}
    if isinstance(state, dict):
        return {k: set_apart(v, found, f"{name}/{k}") for k, v in state.items()}
    if isinstance(state, list):
        return [set_apart(v, found, f"{name}/{i}") for i, v in enumerate(state)]
    return state


def write(folder: Path, found: dict[str, Rows]) -> dict[str, str]:
    """Write rows aside, all processes together; return the digests of the files by name."""
    if processes.rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    processes.meet()
    whole = {name: _whole(rows.own.detach(), rows.total) for name, rows in found.items()}
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with _one_process_is_enough():
        save(whole, storage_writer=writer, no_dist=processes.count() == 1)
    own = folder.glob(f"shard-{processes.rank() + 1:05d}-*")
    digests = processes.everyones({file.name: digest(file) for file in own})
    return {name: digest for part in digests for name, digest in part.items()}


def are_whole(folder: Path, digests: dict[str, str]) -> bool:
    """Whether the files are those that were written; each process looks at its share of them."""
    own = sorted(digests)[processes.rank() :: processes.count()]
    try:
        whole = all(digest(folder / name) == digests[name] for name in own)
    except OSError:
        whole = False
    return all(processes.everyones(whole))


def read(folder: Path, state: Any) -> Any:
    """Return a state with this process's rows in the place of the marks."""
    wanted: dict[str, Rows] = {}
    state = _with_rows(state, wanted)
    reader = HuggingFaceStorageReader(str(folder))
    whole = {name: _whole(own, total) for name, (own, total) in wanted.items()}
    with _one_process_is_enough():
        load(whole, storage_reader=reader, no_dist=processes.count() == 1)
    return state


@contextmanager
def _one_process_is_enough() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _with_rows(state: Any, wanted: dict[str, Rows]) -> Any:
    """Put empty rows of this process in the place of the marks."""
    if isinstance(state, dict) and MARK in state:
        total, *others = state["shape"]
        count = processes.shares(total, processes.count())[processes.rank()]
        dtype, device = getattr(torch, state["dtype"]), processes.device_of_exchange()
        own = torch.zeros(count, *others, dtype=dtype, device=device)
        wanted[state[MARK]] = Rows(own, total)
        return own
    if isinstance(state, dict):
        return {key: _with_rows(value, wanted) for key, value in state.items()}
    if isinstance(state, list):
        return [_with_rows(value, wanted) for value in state]
    return state


def _whole(own: Tensor, total: int) -> Tensor:
    """The rows of this process as part of a tensor of all of them."""
    if processes.count() == 1:
        return own
    mesh = init_device_mesh(own.device.type, (processes.count(),))
    shape = torch.Size([total, *own.shape[1:]])
    stride = torch.empty(shape, device="meta").stride()
    whole: Tensor = DTensor.from_local(
        own, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride
    )
    return whole

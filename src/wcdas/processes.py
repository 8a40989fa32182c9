"""One process, or one of several: which one this is, and what they tell each other."""

import gc
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from wcdas.errors import InputError
from wcdas.interrupt import Stopped, signals_held, stopped_with_parent

MEETING_SECONDS = 1800  # then PyTorch waits for as long, and says what is missing

T = TypeVar("T")


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
    """Join the processes torchrun started, or be the only one.

    Nothing may hold the process group when it is destroyed, neither an error nor a cycle. What held
    it, such as DistributedDataParallel, would join gloo's threads later with Python's lock taken,
    and one of them may wait for that lock to give back the tensor it last worked on.
    """
    chosen = choose_device(device)
    if "WORLD_SIZE" not in os.environ:
        with on_device(chosen):
            yield Ranks(0, 1, chosen)
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(chosen)
    # Its functions have as a default the group that there is at their import, and would keep it.
    import_module("torch.distributed.nn")
    with stopped_with_parent() if dist.is_torchelastic_launched() else nullcontext():
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
            _meet()
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", **_of_this_start())
        try:
            yield Ranks(dist.get_rank(), dist.get_world_size(), chosen)
        except BaseException as error:
            _clear_frames(error)
            raise
        finally:
            gc.collect()
            dist.destroy_process_group()


def _meet() -> None:
    """Wait at torchrun's store until all have come; stop where torchrun has gone.

    PyTorch would wait half an hour for either, and no signal ends that.
    """
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    came = f"wcdas {restarts()}"
    try:
        socket.create_connection(place, timeout=10).close()
        store = _store()
        store.add(came, 1)
        end = time.monotonic() + MEETING_SECONDS
        while store.add(came, 0) < int(os.environ["WORLD_SIZE"]) and time.monotonic() < end:
            time.sleep(0.05)
    except (ConnectionError, dist.DistError):
        raise Stopped(signal.SIGTERM) from None
    except OSError:  # which shows when they begin
        pass


def _of_this_start() -> dict[str, Any]:
    """Where processes find each other, apart from those that torchrun has started before.

    They would look for these, since PyTorch writes all addresses to one place. torchrun counts its
    starts on each machine by itself, so those on several machines are left to PyTorch.
    """
    world = int(os.environ["WORLD_SIZE"])
    if (store := _store()) is None or int(os.environ.get("LOCAL_WORLD_SIZE", world)) != world:
        return {}
    own = dist.PrefixStore(f"wcdas start {restarts()}", store)  # type: ignore[attr-defined]
    return {"store": own, "rank": int(os.environ["RANK"]), "world_size": world}


def restarts() -> int:
    """How often torchrun has started these processes again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def remember(name: str, value: str) -> None:
    """Let torchrun keep a text for the processes that it starts in the place of these."""
    if (store := _store()) is not None:
        store.set(f"wcdas {name}", value)


def recalled(name: str) -> str:
    """What processes that were here before remembered; empty where it is nothing."""
    store, key = _store(), f"wcdas {name}"
    return store.get(key).decode() if store is not None and store.check([key]) else ""


def _store() -> Any:
    """torchrun's store, which outlives the processes; None where they are not torchrun's."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return None
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(*place, wait_for_workers=False)  # type: ignore[attr-defined]


@contextmanager
def stopped_with_others() -> Iterator[None]:
    """Where another process has ended, stop as by SIGTERM, which torchrun is about to send."""
    try:
        yield
    except RuntimeError as error:
        if "gloo/transport" not in str(error):
            raise
        if callable(signal.getsignal(signal.SIGTERM)):
            signal.raise_signal(signal.SIGTERM)  # and the one to come says nothing new
        raise Stopped(signal.SIGTERM) from None


def _clear_frames(error: BaseException | None) -> None:
    """Drop the local variables of the calls that an error, and those before it, came through."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


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
    if (device.index or 0) >= torch.cuda.device_count() and device.type == "cuda":
        last = torch.cuda.device_count() - 1
        raise InputError(f"device is {name!r}; expected cuda:0 to cuda:{last}, the GPUs there are")
    return device


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current one, on which streams, graphs and kernels are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def device_name(device: torch.device) -> str:
    """Return "cpu", or what a GPU is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def start_method(workers: int) -> BaseContext | None:
    """Say how worker processes are started; None is as Python does it, by a fork.

    A thread of gloo that gives a tensor back registers with Python for a moment, and a fork in that
    moment leaves the child waiting for it for ever. A server without threads is forked instead.
    """
    if not workers or not dist.is_initialized() or dist.get_backend() != "gloo":
        return None
    context = get_context("forkserver")
    context.set_forkserver_preload(["wcdas.data.inputs"])
    with signals_held():
        resource_tracker.ensure_running()  # it lets signals through, and so would start no server
    return context


def end_with_parent(worker: int = 0) -> None:
    """In a process that works for another: end where that one is gone, even if it was killed.

    PyTorch's workers look for the process that forked them, which may be a server that waits for
    them in turn.
    """
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def started(loader: DataLoader[T]) -> Iterator[T]:
    """Begin with a loader's batches; its workers leave signals to this process, which ends them."""
    with signals_held():
        batches = iter(loader)
    for worker in getattr(batches, "_workers", ()):
        # One that hangs would be ended by a SIGTERM that it does not get.
        worker._popen.terminate = worker._popen.kill
    return batches


def agreed(here: Ranks, decide: Callable[[], T]) -> T:
    """What the first process decides, in all of them; where it refuses, all do."""
    if here.world == 1:
        return decide()
    told: list[Any] = [None]
    if here.is_main:
        try:
            told = [decide()]
        except InputError as error:
            told = [error]
    dist.broadcast_object_list(told)
    if isinstance(told[0], InputError):
        raise told[0]
    decided: T = told[0]
    return decided


def spare_cores() -> int:
    """How many cores there are beside the one that this process needs."""
    return max(0, (os.cpu_count() or 1) - 1)


def count() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is, from 0 on."""
    return dist.get_rank() if count() > 1 else 0


def shares(total: int, parts: int) -> list[int]:
    """How many of a total each process has, as `torch.chunk` cuts them; the last may have none."""
    each = -(-total // parts)
    return [min(each, max(0, total - part * each)) for part in range(parts)]


def of_the_first(value: T) -> T:
    """What the first process has, in all of them."""
    told = [value]
    if count() > 1:
        dist.broadcast_object_list(told)
    return told[0]


def everyones(value: T) -> list[T]:
    """What each process has, in all of them."""
    told: list[Any] = [value] * count()
    if count() > 1:
        dist.all_gather_object(told, value)
    return told


def device_of_exchange() -> torch.device:
    """Where tensors are that the processes exchange: on the GPUs with NCCL, else on the CPU."""
    nccl = count() > 1 and dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")


def meet() -> None:
    """Wait until all processes have come here."""
    if count() > 1:
        dist.barrier()


def total(values: Tensor) -> Tensor:
    """The sum over all processes; the values themselves where there is one."""
    return _reduced(values, dist.ReduceOp.SUM)


def mean(values: Tensor) -> Tensor:
    """The mean over all processes; the values themselves where there is one."""
    return values if count() == 1 else total(values) / count()


def largest(values: Tensor) -> Tensor:
    """The largest over all processes; the values themselves where there is one."""
    return _reduced(values, dist.ReduceOp.MAX)


def _reduced(values: Tensor, operation: Any) -> Tensor:
    if count() == 1:
        return values
    values = values.detach().clone()
    dist.all_reduce(values, operation)
    return values


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes, joined; each may have another number of rows."""
    if count() == 1:
        return rows
    device = device_of_exchange()
    rows = rows.to(device)
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(count())]
    dist.all_gather(counts, torch.tensor([len(rows)], device=device))
    longest = max(int(n) for n in counts)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: len(rows)] = rows
    parts = [torch.zeros_like(padded) for _ in range(count())]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(n)] for part, n in zip(parts, counts, strict=True)])


def share_buffers(module: nn.Module) -> None:
    """Give every process the buffers of the first: each has its own statistics of a batch norm."""
    if count() > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, 0)


def of_all(rows: Tensor) -> Tensor:
    """The rows of all processes; a gradient goes back to the process that a row came from.

    Where all take the same loss of all rows, the mean of gradients that DDP forms is the gradient
    of a single process.
    """
    if count() == 1:
        return rows
    gathered: Tensor = _Gathered.apply(rows)
    return gathered


class _Gathered(torch.autograd.Function):
    """As in `torch.distributed.nn`, which keeps the process group alive beyond its end."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        gathered = rows.new_empty(dist.get_world_size() * len(rows), *rows.shape[1:])
        dist.all_gather_into_tensor(gathered, rows)
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        own = gradient.new_empty(len(gradient) // dist.get_world_size(), *gradient.shape[1:])
        dist.reduce_scatter_tensor(own, gradient.contiguous())
        return own


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
    if count() == 1:
        return parameter
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

"""How a network looks at images: in batches, a memory format, threads and a precision that suit the
device."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

from wcdas.backbones import Backbone
from wcdas.backbones.resnets import ResNet32
from wcdas.run.automatic import TINY

PIXELS = 2**16  # of a batch on a CPU, which is fastest with maps that stay in its caches
LEAST, MOST = 4, 256  # images of a batch
AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}

Given = TypeVar("Given")
Answer = TypeVar("Answer")


def images_at_a_time(size: int, device: torch.device) -> int:
    """Return the batch size for images of a side; 0 is that of feature vectors."""
    if device.type != "cpu" or size == 0:
        return MOST
    return min(max(PIXELS // size**2, LEAST), MOST)


def memory_format(backbone: Backbone, size: int, device: torch.device) -> torch.memory_format:
    """Return how images and filters lie in memory: convolutions are faster with the channels last,
    but for our own kernels, and tiny images gain nothing."""
    if size < TINY or (device.type == "cuda" and isinstance(backbone, ResNet32)):
        return torch.contiguous_format
    return torch.channels_last


def in_precision(amp: str, device: torch.device) -> torch.autocast:
    """Let a network compute in the precision of a run."""
    return torch.autocast(device.type, AMP.get(amp, torch.bfloat16), enabled=amp != "none")


def in_threads(
    compute: Callable[[Given], Answer], inputs: Iterable[Given], device: torch.device
) -> Iterator[Answer]:
    """Return what is computed from one input after another.

    On a CPU every core computes a batch of its own: convolutions that share one wait for each
    other, the longer the busier the machine is.
    """
    if device.type != "cpu":
        yield from map(compute, inputs)
        return
    cores = torch.get_num_threads()
    one_core = partial(torch.set_num_threads, 1)  # of a thread, and of those to come
    waiting: deque[Future[Answer]] = deque()
    try:
        with ThreadPoolExecutor(cores, initializer=one_core) as pool:
            for given in inputs:
                waiting.append(pool.submit(compute, given))
                if len(waiting) > cores:
                    yield waiting.popleft().result()
            for future in waiting:
                yield future.result()
    finally:
        torch.set_num_threads(cores)

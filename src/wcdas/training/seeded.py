"""PyTorch's own random numbers, of which a process has one sequence for all its threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from the sequence of a seed; other threads wait."""
    with _ONE_AT_A_TIME:
        torch.manual_seed(seed)
        yield

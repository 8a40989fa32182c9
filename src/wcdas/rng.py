"""Counter-based random numbers: the same on a CPU, on a GPU, in a worker and after a resume.

A number is a hash of (key, counter, draw index) and of nothing else, so a sample's numbers do not
depend on who asks for them, in which order, or on which device. The hash is the finaliser of
SplitMix64 (G. Steele, D. Lea, C. Flood, 2014), applied to the key, the counter and the draw in
turn, in int64 arithmetic that wraps around.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import torch
from torch import Tensor

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_DRAW = 0xD1B54A32D192ED03
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_ONE_AT_A_TIME = threading.RLock()


class Purpose(IntEnum):
    """The purpose of a stream, where it is none of the stages and epochs, which count from 0."""

    ORDER = 1_000
    SECOND = 1_001
    HOLDOUT = 1_002
    HEAD = 1_003
    INITIAL = 1_004
    VIEWS = 1_005
    SELECTION = 1_006
    PATCHES = 1_007


def stream(seed: int, *parts: int) -> int:
    """A key of 63 bits from a seed and what it is for, such as (seed, stage, epoch).

    Order and number of the parts matter; any integers will do, negative ones too.

    >>> stream(0, 1, 2) == stream(0, 1, 2), stream(0, 1, 2) == stream(0, 2, 1)
    (True, False)
    """
    state = _mix_int(seed + _GOLDEN)
    for part in parts:
        state = _mix_int((state + _GOLDEN) ^ _mix_int(part + _DRAW))
    return state >> 1


def bits(key: int | Tensor, counters: Tensor, draws: int) -> Tensor:
    """Random integers of 63 bits, (len(counters), draws) int64, on the counters' device.

    A key that changes between replays of a CUDA graph is a tensor () int64 on that device.
    """
    if isinstance(key, Tensor):
        first: int | Tensor = _mix(key + _signed(_GOLDEN))
    else:
        first = _signed(_mix_int(key + _GOLDEN))
    start = _mix(counters.long() * _signed(_GOLDEN) + first)
    steps = torch.arange(1, draws + 1, device=counters.device) * _signed(_DRAW)
    return _shift(_mix(start[:, None] + steps), 1)


def uniform(key: int | Tensor, counters: Tensor, draws: int) -> Tensor:
    """Uniform numbers in [0, 1) with 24 bits, (len(counters), draws) float32.

    >>> uniform(7, torch.arange(3), 2).equal(uniform(7, torch.arange(9), 5)[:3, :2])
    True
    """
    return _shift(bits(key, counters, draws), 39).float() * 2.0**-24


def uniform_double(key: int | Tensor, counters: Tensor, draws: int) -> Tensor:
    """Uniform numbers in [0, 1) with 53 bits, (len(counters), draws) float64."""
    return _shift(bits(key, counters, draws), 10).double() * 2.0**-53


def permutation(key: int, n: int) -> Tensor:
    """A random order of 0 … n − 1, int64 on the CPU."""
    return bits(key, torch.arange(n), 1)[:, 0].argsort(stable=True)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let PyTorch draw from the sequence of a seed; a process has one, so other threads wait."""
    with _ONE_AT_A_TIME:
        torch.manual_seed(seed)
        yield


def _mix(z: Tensor) -> Tensor:
    for shift, factor in _STEPS:
        z = (z ^ _shift(z, shift)) * _signed(factor)
    return z ^ _shift(z, _LAST_SHIFT)


def _mix_int(z: int) -> int:
    z &= _WORD
    for shift, factor in _STEPS:
        z = (z ^ (z >> shift)) * factor & _WORD
    return z ^ (z >> _LAST_SHIFT)


def _shift(z: Tensor, count: int) -> Tensor:
    """A shift to the right that fills with zeros: int64's own copies the sign."""
    return (z >> count) & ((1 << (64 - count)) - 1)


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    return word - (1 << 64) if word >> 63 else word

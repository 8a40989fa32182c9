"""How many threads PyTorch computes with on a CPU.

Threads wait for each other at every operation: one whose core is busy with something else holds up
all, so there are no more of them than cores are free.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

PROC, SYS = Path("/proc"), Path("/sys")
SAMPLE_SECONDS = 0.25
NEARLY = 0.75  # of a core that is free; system services take some of any
SET_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "WORLD_SIZE")  # the last by torchrun
OVERRULE = "OMP_NUM_THREADS=N before the command sets another number"


def choose_threads(short: str = "") -> tuple[int, str]:
    """Return a number of threads, and why it is that; without words where somebody chose it.

    Args:
        short: what the steps are of, where one core has done them before several have agreed.
    """
    present = torch.get_num_threads()
    if any(os.environ.get(name) for name in SET_BY) or present not in _defaults():
        return present, ""
    if short:
        return 1, f"threads: 1, since steps on {short} gain nothing from more; {OVERRULE}"
    free = free_cores()
    count = max(1, min(present, math.floor(free + 1 - NEARLY)))
    return count, f"threads: {count}, since {free:.1f} of {present} cores are free; {OVERRULE}"


@contextmanager
def with_threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads in the block; None leaves them as they are."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)


def free_cores() -> float:
    """How many of the cores that this process may use nobody uses now.

    Idle time is sampled for a moment, since a load average lags by a minute. Where the system does
    not tell, all are free.
    """
    cpus = _cpus()
    limit = min(float(len(cpus)), _quota())
    before = _times(cpus)
    if before is None:
        return limit
    time.sleep(SAMPLE_SECONDS)
    after = _times(cpus)
    assert after is not None
    passed = [(i - idle, t - whole) for (i, t), (idle, whole) in zip(after, before, strict=True)]
    return min(limit, sum(idle / max(whole, 1) for idle, whole in passed))


def _cpus() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _defaults() -> set[int]:
    """What PyTorch takes by itself: as many threads as cores, two of which may share one."""
    shared = SYS / "devices/system/cpu"
    files = [shared / f"cpu{cpu}" / "topology/thread_siblings_list" for cpu in _cpus()]
    try:
        return {len(files), len({file.read_text() for file in files})}
    except OSError:
        return {len(files)}


def _times(cpus: list[int]) -> list[tuple[int, int]] | None:
    """The idle time and all time of each core since the machine started, in ticks."""
    try:
        lines = (PROC / "stat").read_text().splitlines()
        rows = {
            line.split()[0]: [int(n) for n in line.split()[1:9]]
            for line in lines[1:]
            if line.startswith("cpu")
        }
        return [(row[3] + row[4], sum(row)) for row in (rows[f"cpu{cpu}"] for cpu in cpus)]
    except (OSError, KeyError, IndexError):
        return None


def _quota() -> float:
    """The cores' worth of time that a container is allowed, by cgroups of version 2 or 1."""
    groups = SYS / "fs/cgroup"
    for files in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            words = " ".join((groups / file).read_text() for file in files).split()
            limit, period = float(words[0]), float(words[1])
        except (OSError, ValueError):  # "max"
            continue
        if limit > 0:
            return limit / period
    return math.inf

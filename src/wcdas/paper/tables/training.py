"""The runs behind the tables: each method under each protocol once, shared by all tables.

A protocol is one folder of `wcdas sweep` under `sweeps/`. What is finished there is never done
again, whichever table asked for it, and an interrupted sweep goes on where it was.
"""

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import torch

import wcdas
from wcdas.data import TAILED
from wcdas.errors import InputError, WorkError
from wcdas.paper.claim import Setting
from wcdas.paper.tables.protocols import STAND_IN, Protocol
from wcdas.processes import choose_device
from wcdas.run.folder import RunFolder
from wcdas.sweeps import Sweep
from wcdas.sweeps.plan import SweepRun

SWEEPS = "sweeps"
QUICK_PROCESSES = 2
RUNS_ON_A_GPU = 8  # small networks leave room for several

Wanted = tuple[Protocol, str]  # and a method


@dataclass(frozen=True)
class Job:
    """A sweep that is not finished, as another process can do it."""

    protocol: Protocol
    methods: tuple[str, ...]
    folder: Path
    root: Path | None
    device: str


def train(setting: Setting, wanted: Iterable[Wanted]) -> dict[Protocol, str]:
    """Do the runs of this mode that are not finished; says why where that could not be."""
    methods: dict[Protocol, list[str]] = {}
    for protocol, method in dict.fromkeys(wanted):
        if is_trained_in(setting.mode, protocol) and missing(setting, protocol, method):
            methods.setdefault(protocol, []).append(method)
    jobs = [
        Job(protocol, tuple(names), folder(setting, protocol), setting.data_root, setting.device)
        for protocol, names in sorted(methods.items(), key=lambda item: -len(item[1]))
    ]
    if not jobs:
        return {}
    if setting.console is not None:
        runs = sum(len(job.methods) * job.protocol.seeds for job in jobs)
        setting.console.print(f"{runs} runs to train in {setting.out / SWEEPS}")
    reasons = _side_by_side(jobs) if setting.mode == "quick" else [_do(job) for job in jobs]
    return {job.protocol: why for job, why in zip(jobs, reasons, strict=True) if why is not None}


def is_trained_in(mode: str, protocol: Protocol) -> bool:
    """Quick mode trains on the digits, real mode on the paper's datasets."""
    return (mode == "quick") == (protocol.data == STAND_IN)


def folder(setting: Setting, protocol: Protocol) -> Path:
    """Quick mode looks for the paper's datasets where a real mode has measured them."""
    elsewhere = None if is_trained_in(setting.mode, protocol) else setting.measured
    return (elsewhere or setting.out) / SWEEPS / protocol.name


def run_folders(setting: Setting, protocol: Protocol, method: str) -> list[RunFolder]:
    """The finished runs of a method, seed by seed."""
    seeds = range(protocol.seeds)
    names = [SweepRun(method, seed).name for seed in seeds]
    runs = [RunFolder(folder(setting, protocol) / name) for name in names]
    return [run for run in runs if run.is_finished]


def missing(setting: Setting, protocol: Protocol, method: str) -> bool:
    return len(run_folders(setting, protocol, method)) < protocol.seeds


def _side_by_side(jobs: list[Job]) -> list[str | None]:
    try:
        return list(_processes().map(_do, jobs))
    except BrokenProcessPool:
        _processes.cache_clear()
        raise WorkError(
            "a process that trained for the tables was ended from outside; often too little "
            "memory. Go on with --resume"
        ) from None


@cache
def _processes() -> ProcessPoolExecutor:
    """For quick mode; they stay until the end, as the next table wants them too. They have one
    thread each, so that a run's rounding does not depend on what is trained beside it."""
    spawn = get_context("spawn")
    return ProcessPoolExecutor(QUICK_PROCESSES, spawn, torch.set_num_threads, (1,))


def _do(job: Job) -> str | None:
    """Why a sweep could not be done."""
    protocol = job.protocol
    settings = dict(protocol.settings)
    if protocol.imbalance is not None:
        settings["data.imbalance"] = protocol.imbalance
    if job.root is not None and protocol.data != STAND_IN:
        settings["data.root"] = str(job.root)
    several = protocol.data in TAILED and choose_device(job.device).type == "cuda"
    begun = (job.folder / "sweep.toml").exists()
    try:
        sweep: Sweep = wcdas.sweep(
            protocol.data,
            job.methods,
            protocol.seeds,
            parallel=RUNS_ON_A_GPU if several and protocol.data != STAND_IN else 1,
            recipe=protocol.recipe,
            settings=settings,
            out=job.folder,
            resume=begun,
            device=job.device,
            report=False,
        )
    except InputError as error:
        if protocol.data == STAND_IN:  # which needs nothing that could be missing
            raise
        return str(error)
    return "; ".join(f"{run}: {why}" for run, why in sweep.failed.items()) or None

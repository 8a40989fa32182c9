"""The runs behind tables and figures: each method under each protocol once, shared by all of them.

A protocol is one folder of `wcdas sweep` under `sweeps/`. What is finished there is never done
again, whichever table asked for it, and an interrupted sweep goes on where it was.
"""

import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import wcdas
from wcdas.errors import InputError, WorkError
from wcdas.interrupt import signals_held
from wcdas.paper.claim import Setting
from wcdas.processes import choose_device, end_with_parent
from wcdas.run import RunFolder, read_own, read_settings, remembered
from wcdas.sweeps import given_settings, select

STAND_IN = "digits-lt"
HEADS_WITH_RHO = ("wcdas", "wndas")
QUICK_PROCESSES = 2
RUNS_ON_A_GPU = 8  # small networks leave room for several


def read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


PROTOCOLS = read_toml("protocols.toml")


@dataclass(frozen=True)
class Protocol:
    """What one sweep holds fixed."""

    data: str
    imbalance: float | None
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The name of the sweep's folder."""
        factor = "" if self.imbalance is None else f"-{self.imbalance:g}"
        changes = "".join(f",{key.removeprefix('stages.')}={v}" for key, v in self.settings)
        return f"{self.data}{factor}{changes}"

    @property
    def recipe(self) -> str | Path | None:
        """A shipped one, a file beside this one, or None where the dataset's own is meant."""
        named: str = PROTOCOLS[self.data].get("recipe", "")
        return Path(__file__).parent / named if named.endswith(".toml") else named or None

    @property
    def seeds(self) -> int:
        return int(PROTOCOLS[self.data]["seeds"])


def protocol(
    method: str, data: str, imbalance: float | None = None, settings: Mapping[str, Any] = {}
) -> Protocol:
    """Return the protocol of a method on a dataset, with what the paper sets for heads with a ρ."""
    has_rho = wcdas.METHODS[method].defaults["head"]["name"] in HEADS_WITH_RHO
    start = PROTOCOLS[data]["init"] if has_rho else {}
    return Protocol(data, imbalance, tuple(sorted({**start, **settings}.items())))


def is_trained_in(mode: str, protocol: Protocol) -> bool:
    """Return whether a mode trains it: quick mode the digits, real mode the paper's datasets."""
    return (mode == "quick") == (protocol.data == STAND_IN)


def sweep_folder(setting: Setting, protocol: Protocol) -> Path:
    """Return the sweep's folder; quick mode looks for the paper's datasets where a real mode has
    measured them."""
    elsewhere = None if is_trained_in(setting.mode, protocol) else setting.measured
    return (elsewhere or setting.out) / "sweeps" / protocol.name


def finished_runs(setting: Setting, protocol: Protocol, method: str) -> list[Path]:
    """Return the folders of a method's finished runs, seed by seed."""
    sweep = sweep_folder(setting, protocol)
    runs = [sweep / f"{method}-s{seed}" for seed in range(protocol.seeds)]
    return [run for run in runs if RunFolder(run).is_finished]


def finished_metrics(setting: Setting, protocol: Protocol, method: str) -> list[Mapping[str, Any]]:
    """Return the metrics of a method's finished runs, seed by seed; from the results, where a mode
    trains none and there are none."""
    runs = finished_runs(setting, protocol, method)
    if runs or is_trained_in(setting.mode, protocol):
        return [wcdas.Run(run).metrics for run in runs]
    recipe, _ = read_own(protocol.recipe)
    settings = given_settings(remembered(recipe, read_settings(dict(protocol.settings))))
    lines = select(setting.results, protocol.data, protocol.imbalance, settings)
    return [line["metrics"] for line in lines if line["method"] == method]


def train(setting: Setting, wanted: Iterable[tuple[Protocol, str]]) -> dict[Protocol, str]:
    """Do the runs of this mode that are not finished, of protocols with a method each; says why
    where that could not be."""
    missing: dict[Protocol, list[str]] = {}
    for one, method in dict.fromkeys(wanted):
        done = len(finished_runs(setting, one, method)) == one.seeds
        if is_trained_in(setting.mode, one) and not done:
            missing.setdefault(one, []).append(method)
    if not missing:
        return {}
    largest_first = sorted(missing, key=lambda one: -len(missing[one]))
    methods = [missing[one] for one in largest_first]
    if setting.console is not None:
        runs = sum(one.seeds * len(of) for one, of in missing.items())
        setting.console.print(f"{runs} runs to train in {setting.out / 'sweeps'}")
    pool = _processes() if setting.mode == "quick" else None
    several, silent = pool.map if pool else map, repeat(replace(setting, console=None))
    try:
        with signals_held():  # else the processes of the pool would get them, too
            work = several(_sweep, silent, largest_first, methods)
        reasons = list(work)
    except KeyboardInterrupt:
        for process in pool._processes.values() if pool else ():
            process.kill()  # what is finished is kept, and the rest has its checkpoints
        _processes.cache_clear()
        raise
    except BrokenProcessPool:
        _processes.cache_clear()
        raise WorkError(
            "a process that trained for the tables was ended from outside; often too little "
            "memory. Go on with --resume"
        ) from None
    return {one: why for one, why in zip(largest_first, reasons, strict=True) if why is not None}


@cache
def _processes() -> ProcessPoolExecutor:
    """Return those of quick mode; they stay until the end, as the next table wants them too. They
    have one thread each, so that a run's rounding does not depend on what is trained beside it."""
    spawn = get_context("spawn")
    return ProcessPoolExecutor(QUICK_PROCESSES, spawn, _begin)


def _begin() -> None:
    end_with_parent()
    torch.set_num_threads(1)


def _sweep(setting: Setting, protocol: Protocol, methods: list[str]) -> str | None:
    """Do a sweep; returns why it could not be done."""
    is_real, settings = protocol.data != STAND_IN, dict(protocol.settings)
    if protocol.imbalance is not None:
        settings["data.imbalance"] = protocol.imbalance
    if setting.data_root is not None and is_real:
        settings["data.root"] = str(setting.data_root)
    small = is_real and protocol.imbalance is not None  # CIFAR
    on_a_gpu = choose_device(setting.device).type == "cuda"
    out = sweep_folder(setting, protocol)
    try:
        sweep = wcdas.sweep(
            protocol.data,
            methods,
            protocol.seeds,
            parallel=RUNS_ON_A_GPU if small and on_a_gpu else 1,
            recipe=protocol.recipe,
            settings=settings,
            out=out,
            resume=(out / "sweep.toml").exists(),
            device=setting.device,
            report=False,
        )
    except InputError as error:
        if not is_real:  # the digits need nothing that could be missing
            raise
        return str(error)
    return "; ".join(f"{run}: {why}" for run, why in sweep.failed.items()) or None

"""A sweep from its plan to its table."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console

from wcdas.data.dataset import Dataset, StoredImages
from wcdas.errors import InterruptedRunError
from wcdas.processes import choose_device
from wcdas.run.finish import run_table
from wcdas.run.folder import RunFolder
from wcdas.run.interrupt import Interrupt
from wcdas.run.schedule import planned
from wcdas.run.settings import remembered
from wcdas.run.spec import Config
from wcdas.sweeps.announce import announce
from wcdas.sweeps.children import side_by_side, train_command
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.one_by_one import one_by_one
from wcdas.sweeps.plan import Plan, SweepRun
from wcdas.sweeps.progress import SweepProgress
from wcdas.sweeps.result import again
from wcdas.sweeps.threads import in_threads

Train = Callable[[Config, RunFolder, Interrupt | None], None]


def run_sweep(
    plan: Plan,
    configs: Mapping[str, Config],
    dataset: Dataset,
    folder: SweepFolder,
    train: Train,
    *,
    parallel: int,
    device: str,
    workers: int,
    console: Console | None,
    notes: list[str],
    loggers: Sequence[str] = ("tensorboard",),
    report: bool = True,
) -> None:
    """Do the runs that are not finished, and keep the table up to date.

    Args:
        plan: what was asked for.
        configs: of every method.
        dataset: what is trained on.
        folder: of the sweep, new or with some runs done.
        train: does a run in this process, from its last checkpoint if there is one.
        parallel: runs at a time; on a GPU threads where its memory holds the data, else processes.
        device: auto, cpu, cuda or cuda:N, for processes of their own.
        workers: of each of them.
        console: where progress is shown; None is silent.
        notes: what was decided about the data.
        loggers: who follows a run in a process of its own.
        report: whether such a process writes a page.
    """
    of_run = {run: replace(configs[run.method], seed=run.seed) for run in plan.runs}
    epochs = {run: _epochs(config) for run, config in of_run.items()}
    given = remembered(plan.recipe, plan.settings)
    failures: dict[SweepRun, str] = {}
    with folder.claimed() as claim:
        announce(console, plan, dataset, folder, notes)
        waiting = folder.unfinished(plan)
        folder.write(plan, dataset)
        folder.write_results(plan, failures)
        progress = SweepProgress(console, folder, epochs)

        def begin(run: SweepRun) -> RunFolder:
            progress.started(run)
            prepare(folder.run(run), of_run[run], dataset, given)
            return folder.run(run)

        if parallel == 1:
            work = one_by_one(waiting, lambda run: train(of_run[run], begin(run), None))
        elif not in_processes(parallel, device, dataset):
            work = in_threads(
                waiting, parallel, lambda run, stop: train(of_run[run], begin(run), stop)
            )
        else:
            threads = max(1, torch.get_num_threads() // parallel)
            work = side_by_side(
                waiting,
                parallel,
                lambda run: train_command(begin(run).path, device, workers, loggers, report),
                threads,
                claim,
            )
        try:
            with progress, closing(work):
                for run, reason in work:
                    progress.ended(run, reason)
                    if reason is not None:
                        failures[run] = reason
                    folder.write_results(plan, failures)
        except (InterruptedRunError, KeyboardInterrupt):
            folder.write_results(plan, failures)
            raise InterruptedRunError(f"stopped; go on with: {again(folder.path)}") from None


def in_processes(parallel: int, device: str, dataset: Dataset) -> bool:
    """Whether the runs have processes of their own; a GPU that holds the data runs threads."""
    resident = not isinstance(dataset.train, StoredImages)
    return parallel > 1 and not (resident and choose_device(device).type == "cuda")


def prepare(
    folder: RunFolder, config: Config, dataset: Dataset, given: Sequence[Mapping[str, Any]]
) -> None:
    """Write down what a run is, so that it can be gone on with; a torn beginning is dropped."""
    if not folder.exists:
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.create(run_table(config, dataset, given))


def _epochs(config: Config) -> int:
    return sum(stage.epochs for _, stage in planned(config.stages))

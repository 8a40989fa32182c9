"""A sweep from its plan to its table."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console

from wcdas.data.dataset import Dataset
from wcdas.errors import InterruptedRunError, WorkError
from wcdas.interrupt import Interrupt, number_of
from wcdas.run.folder import RunFolder, run_table
from wcdas.run.schedule import planned
from wcdas.run.settings import remembered, seen_by
from wcdas.run.spec import Config
from wcdas.sweeps.execute import (
    LostClusterError,
    in_process,
    on_own_stream,
    one_by_one,
    side_by_side,
)
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.plan import Plan, SweepRun
from wcdas.sweeps.progress import SweepProgress

if TYPE_CHECKING:
    from wcdas.sweeps.runner import Room


def run_sweep(
    plan: Plan,
    configs: Mapping[str, Config],
    dataset: Dataset,
    folder: SweepFolder,
    train: Callable[[Config, RunFolder, Interrupt], None],
    command: Callable[[Path], Sequence[str]] | None,
    parallel: int,
    threads: int | None,
    console: Console | None,
    notes: Sequence[str],
    weights: Mapping[str, str],
    room: "Room | None",
    go_on: str,
) -> None:
    """Do the runs that are not finished, and keep the table up to date.

    Args:
        plan: what was asked for.
        configs: of every method.
        dataset: what is trained on.
        folder: of the sweep, new or with some runs done.
        train: does a run in this process, from its last checkpoint if there is one.
        command: does the run in a folder in a process of its own; None where this one does all.
        parallel: runs at a time.
        threads: of each run on a CPU; None as they are.
        console: where progress is shown; None is silent.
        notes: what was decided about the data.
        weights: where those of each method's backbone come from.
        room: on the machines of a cluster; None where the runs are done on this one.
        go_on: the command that goes on with the sweep.
    """
    runs = {run: replace(configs[run.method], seed=run.seed) for run in plan.runs}
    epochs = {run: sum(stage.epochs for _, stage in planned(c.stages)) for run, c in runs.items()}
    given = remembered(plan.recipe, plan.settings)
    share = threads or (room.cpus if room else max(1, torch.get_num_threads() // parallel))
    failures: dict[SweepRun, str] = {}
    with folder.claimed() as claim:
        progress = SweepProgress(console, folder, epochs)
        progress.announce(plan, dataset, notes, weights.values())
        waiting = folder.unfinished(plan)
        folder.write(plan, dataset)
        folder.write_results(plan, failures)

        def begin(run: SweepRun) -> RunFolder:
            """Write down what a run is, so that it can be gone on with; drop a torn beginning."""
            progress.started(run)
            own = folder.run(run)
            if not own.exists:
                shutil.rmtree(own.path, ignore_errors=True)
                config = runs[run]
                seen = seen_by(config, dataset)
                own.create(run_table(config, seen, given, threads, weights[run.method]))
            return own

        def here(run: SweepRun, interrupt: Interrupt) -> None:
            train(runs[run], begin(run), interrupt)

        def apart(run: SweepRun, interrupt: Interrupt) -> None:
            assert command is not None
            in_process(command(begin(run).path), share, claim, interrupt)

        def elsewhere(run: SweepRun, interrupt: Interrupt) -> None:
            assert room is not None
            assert command is not None
            lost = partial(progress.lost, run)
            room.do(partial(begin, run), command, share, lost, interrupt)

        if room is not None:
            work = side_by_side(waiting, room.runs, elsewhere)
        elif parallel == 1:
            work = one_by_one(waiting, here)
        elif command is not None:
            work = side_by_side(waiting, parallel, apart)
        else:
            work = side_by_side(waiting, parallel, on_own_stream(here))
        try:
            with progress, closing(work):
                for run, reason in work:
                    progress.ended(run, reason)
                    if reason is not None:
                        failures[run] = reason
                    folder.write_results(plan, failures)
        except (InterruptedRunError, KeyboardInterrupt) as stop:
            folder.write_results(plan, failures)
            raise InterruptedRunError(f"stopped; go on with: {go_on}", number_of(stop)) from None
        except LostClusterError as lost:
            folder.write_results(plan, failures)
            raise WorkError(f"{lost}, and go on with: {go_on}") from None

"""Checks before the first run of a sweep starts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from wcdas.data.dataset import Dataset
from wcdas.errors import InputError, explained
from wcdas.integrations import create_callbacks
from wcdas.methods import find_method, is_shipped
from wcdas.processes import Ranks
from wcdas.run.build import build_run
from wcdas.run.folder import check_unused, new_folder
from wcdas.run.frozen import FrozenDataset
from wcdas.run.settings import PATHS, changes, check_same, same_data, short_name
from wcdas.run.spec import Config, Table, as_table, build, flat
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.plan import Asked, Plan, SweepRun, extended, new_plan


def begin(
    asked: Asked, out: str | Path | None, resume: bool
) -> tuple[Plan, SweepFolder, Table | None]:
    """Return the plan, its folder, and what an old sweep's folder says of the data."""
    if "WORLD_SIZE" in os.environ:
        raise InputError(
            "a sweep starts its runs itself; call it without torchrun, with --parallel"
        )
    stored: Table | None = None
    if resume:
        if out is None:
            raise InputError("--resume needs to know which sweep; name its folder with --out")
        folder = SweepFolder(Path(out))
        before, stored = folder.read()
        check_unused(folder.path)
        plan = extended(before, asked)
    else:
        plan = new_plan(asked)
        folder = SweepFolder(new_folder(out, f"{short_name(plan.source)}-sweep"))
    plan.check()
    return plan, folder, stored


def check_parallel(parallel: int | None) -> None:
    if parallel is not None and (type(parallel) is not int or parallel < 1):
        raise InputError(f"--parallel is {parallel}; expected how many runs at a time, 1 or more")


def check_loggers(callbacks: Sequence[str]) -> None:
    """Refuse a logger that is not there, and a callback that runs would have to share."""
    create_callbacks(callbacks)
    for callback in callbacks:
        if not isinstance(callback, str):
            raise InputError(
                f"callbacks holds {callback!r}; a sweep takes names, such as 'tensorboard', since "
                "every run is followed by a callback of its own"
            )


def check_known(plan: Plan, others: str, remedy: str) -> None:
    """Refuse a method that others, by which runs are done, would not know."""
    own = [method for method in plan.methods if not is_shipped(method)]
    if own:
        raise InputError(
            f"method {own[0]!r} is registered by a script, which {others} do not run; {remedy}, or "
            "put the method into src/wcdas/methods"
        )


def files_of(configs: Mapping[str, Config]) -> list[Path]:
    """Return the files and folders that the runs read."""
    found = [c.data.get(key) for c in configs.values() for key in PATHS]
    found += [f for c in configs.values() for f in (c.backbone.weights, c.teacher)]
    return [path for path in map(Path, filter(None, dict.fromkeys(found))) if path.is_absolute()]


def check_buildable(
    configs: Mapping[str, Config],
    datasets: Mapping[str, Dataset],
    folder: SweepFolder,
    workers: int,
) -> dict[str, str]:
    """Build every method once: what a model or a stage cannot be made of is refused.

    Returns where the weights of each backbone come from.
    """
    here = Ranks(0, 1, torch.device("cpu"))
    weights = {}
    for method, config in configs.items():
        folder_of_run, dataset = folder.run(SweepRun(method, 0)), datasets[method]
        with explained(f"{method}: ", InputError):
            run = build_run(config, find_method(method), dataset, folder_of_run, here, workers)
        backbone = dataset.network if isinstance(dataset, FrozenDataset) else run.model.backbone
        weights[method] = backbone.weights_from
    return weights


def settled(
    plan: Plan,
    configs: Mapping[str, Config],
    dataset: Dataset,
    folder: SweepFolder,
    stored: Table | None,
) -> tuple[Plan, dict[str, Config]]:
    """Give all runs one account of the data; an old sweep keeps its own, and must be as it was."""
    if stored is None:
        plan = replace(plan, data=configs[plan.methods[0]].data)
    settled = {method: replace(config, data=plan.data) for method, config in configs.items()}
    if stored is not None:
        same_data(stored, dataset)
        for run in [run for run in plan.runs if folder.run(run).exists]:
            # Whether there is room for decoded images may change from one day to the next.
            before = folder.run(run).read_run().get("cache", False)
            settled[run.method] = replace(settled[run.method], cache=before)
            _check_unchanged(run, folder, replace(settled[run.method], seed=run.seed))
    return plan, settled


def _check_unchanged(run: SweepRun, folder: SweepFolder, config: Config) -> None:
    """Refuse a run that was started under another protocol."""
    table = folder.run(run).read_run()
    before = flat(as_table(build({key: v for key, v in table.items() if key != "info"})))
    now = flat(as_table(config))
    both = dict.fromkeys([*before, *now])
    changed = changes(before, {key: now.get(key) for key in both})
    check_same(run.name, changed, "start a new sweep with another --out")

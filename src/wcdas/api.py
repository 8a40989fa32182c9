"""Train, evaluate and load in one call each."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from wcdas.data import HuggingFace, list_datasets
from wcdas.data.dataset import Dataset, FeatureVectors
from wcdas.data.description import describe, duplicates
from wcdas.data.sources import open_data
from wcdas.deploy import Model, load
from wcdas.errors import InputError
from wcdas.evaluation import result_table
from wcdas.heads import Head
from wcdas.integrations import create_callbacks
from wcdas.methods import find_method
from wcdas.processes import choose_device, ranks
from wcdas.report import report_on
from wcdas.run.automatic import automatic
from wcdas.run.build import build_run
from wcdas.run.callbacks import Callback, Followers
from wcdas.run.console import announce, warn
from wcdas.run.effect import check_effect, check_effect_on_features
from wcdas.run.finish import finish, run_table
from wcdas.run.folder import (
    RunFolder,
    check_free,
    explained,
    next_folder,
    nothing_left_behind,
)
from wcdas.run.interrupt import Interrupt
from wcdas.run.loop import Loop
from wcdas.run.places import place, placed, short
from wcdas.run.recipes import list_recipes, resolve
from wcdas.run.resuming import same_data, unchanged
from wcdas.run.settings import (
    DEFAULT_METHOD,
    Settings,
    check_keys,
    data_of,
    data_options,
    read_layers,
    read_own,
    said,
)
from wcdas.run.single_step import single_step
from wcdas.run.spec import Config
from wcdas.sweeps import Asked, Sweep, run_sweep
from wcdas.sweeps.beginning import (
    begin,
    check_buildable,
    check_known,
    check_loggers,
    check_parallel,
    runs_at_a_time,
    settled,
    shared_workers,
)

Table = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A finished run; stands for its folder wherever a path is expected."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """What metrics.json holds: the metrics of the last epoch."""
        return RunFolder(self.path).read_metrics()

    @cached_property
    def model(self) -> Model:
        """The trained model, loaded when first asked for."""
        return load(self.path)

    def table(self) -> str:
        """Accuracy of the last epoch by group, as text."""
        return result_table({self.metrics["method"]: self.metrics})


def train(
    data: str | Path | HuggingFace | None = None,
    method: str | None = None,
    *,
    recipe: str | Path | None = None,
    settings: Settings = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    skip_bad: bool = False,
    callbacks: Sequence[str | Callback] = ("tensorboard",),
    report: bool = True,
    console: Console | None = None,
) -> Run:
    """Train a classifier on long-tailed images, evaluate it, and leave everything in a folder.

    Args:
        data: a dataset's name, a folder of class folders, a list file, Parquet, features, or a
            `Dataset` or `DatasetDict` of Hugging Face `datasets`; `digits-lt` without it.
        method: a name of `list_methods()`; `wcdas-prior` without it.
        recipe: a shipped recipe's name or a TOML file.
        settings: single values over the recipe, as dotted paths: {"epochs": 50} or ["epochs=50"].
        seed: of everything random; 0 without it.
        out: the run's folder; `runs/<data>-<method>-s<seed>-<n>` without it.
        resume: go on with the run in `out`.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images; all cores but one without it.
        skip_bad: leave unreadable images out.
        callbacks: who follows the run: `Callback`s, or "tensorboard", "wandb", "mlflow".
        report: write report.html and figures/ at the end; `write_report` does it later.
        console: where progress is shown; None is silent.
    """
    followers = create_callbacks(callbacks)
    layers, method = read_layers(recipe, settings, method)
    kind = choose_device(device).type
    stored: Table | None = None
    notes: list[str] = []
    if resume:
        stored, folder = _stored(out)
        check_keys(layers, method or stored["method"])
        config = unchanged(stored, data, method, layers, seed)
        if folder.is_finished:
            return Run(folder.path)
        with _busy(console, "reading the data"):
            source = config.data["source"] if data is None else data
            dataset = open_data(source, config.data, skip_bad)
        same_data(stored, dataset)
        dataset = replace(dataset, name=short(config.data["source"]))
    else:
        method = method or DEFAULT_METHOD
        check_keys(layers, method)
        # A bad value is refused before images are read.
        check_effect([(resolve(method, "", layers, {}, seed), layers)])
        if out is not None:
            check_free(Path(out))
        options = data_of(layers)
        source = options.get("source", "digits-lt") if data is None else data
        with _busy(console, "reading the data"):
            dataset = open_data(source, options, skip_bad)
            dataset = replace(dataset, name=short(source))
            config, notes = _configure(dataset, source, method, layers, seed, kind, skip_bad)
        path = Path(out) if out else next_folder(f"{short(source)}-{method}-s{config.seed}")
        check_free(path)
        folder = RunFolder(path)
    given = None if resume else said(read_own(recipe)[0], layers[-1])
    _train(config, dataset, folder, device, workers, console, notes, followers, report, given)
    return Run(folder.path)


def sweep(
    data: str | Path | None = None,
    methods: str | Sequence[str] | None = None,
    seeds: int | None = None,
    *,
    parallel: int | None = None,
    recipe: str | Path | None = None,
    settings: Settings = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    skip_bad: bool = False,
    callbacks: Sequence[str] = ("tensorboard",),
    report: bool = True,
    console: Console | None = None,
) -> Sweep:
    """Train methods with several seeds under one protocol and compare them in one table.

    A run that fails does not stop the others; `failed` of what is returned names it.

    Args:
        data: as for `train`.
        methods: names of `list_methods()`, as a list or as "a,b,c"; the recipe's without them.
        seeds: how many, from 0 on; 3 without it.
        parallel: runs at a time. Without it, on a GPU that holds small images, as many as fit and
            8 at most; else one.
        recipe: as for `train`.
        settings: as for `train`; a stage or an option is set for the methods that have it.
        out: the sweep's folder; `runs/<data>-sweep-<n>` without it.
        resume: go on with the sweep in `out`; methods and seeds may be added.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images for a run; all cores but one, shared by the runs at
            work, without it.
        skip_bad: leave unreadable images out.
        callbacks: who follows each run: "tensorboard", "wandb", "mlflow".
        report: write report.html and figures/ at the end; `write_report` does it later.
        console: where progress is shown; None is silent.
    """
    check_loggers(callbacks)
    check_parallel(parallel)
    kind = choose_device(device).type
    asked = Asked(data, methods, seeds, recipe, settings, skip_bad)
    plan, folder, stored = begin(asked, out, resume)
    if stored is not None and not folder.unfinished(plan):
        folder.write_results(plan, {})
        return Sweep(folder.path)
    with _busy(console, "reading the data"):
        dataset = open_data(plan.source, plan.data, plan.skip_bad)
        parallel = runs_at_a_time(parallel, len(folder.unfinished(plan)), device, dataset)
        workers = shared_workers(workers, parallel)
        check_known(plan, parallel, device, dataset)
        dataset = replace(dataset, name=short(plan.source))
        configured = {
            method: _configure(
                dataset, plan.source, method, plan.layers(method), 0, kind, plan.skip_bad
            )
            for method in plan.methods
        }
        configs = {method: config for method, (config, _) in configured.items()}
        plan, configs = settled(plan, configs, dataset, folder, stored)
    with _busy(console, "preparing the models"):
        check_buildable(configs, dataset, folder, workers)

    def train_run(config: Config, run: RunFolder, interrupt: Interrupt | None) -> None:
        followers = create_callbacks(callbacks)  # a run has its own
        _train(config, dataset, run, device, workers, None, [], followers, report, None, interrupt)

    notes = [note for _, of_method in configured.values() for note in of_method]
    run_sweep(
        plan,
        configs,
        dataset,
        folder,
        train_run,
        parallel=parallel,
        device=device,
        workers=workers,
        console=console,
        notes=list(dict.fromkeys(notes)),  # most are of the data, so all methods have the same
        loggers=callbacks,
        report=report,
    )
    return Sweep(folder.path)


def check_data(
    data: str | Path | HuggingFace,
    settings: Settings = None,
    skip_bad: bool = False,
) -> Iterator[str]:
    """What there is to know about a dataset before training on it, line by line.

    Args:
        data: what `train` would be given.
        settings: options of the data: {"data.root": "images"} or ["data.root=images"].
        skip_bad: leave unreadable images out.

    Raises:
        InputError: at the end, if there are unreadable images that are not to be left out.
    """
    options = data_options(settings)
    try:
        dataset = open_data(data, options, skip_bad=True)
    except InputError:
        if not skip_bad:
            open_data(data, options)  # names the bad images, if too few are left because of them
        raise
    yield from describe(dataset, every_bad=True)
    yield from duplicates(dataset)
    if dataset.bad and not skip_bad:
        images = len(dataset.train) + len(dataset.test) + len(dataset.bad)
        raise InputError(
            f"{len(dataset.bad)} of {images} images cannot be used; remove them, or leave them out "
            "with --skip-bad"
        )


def _train(
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    device: str,
    workers: int | None,
    console: Console | None,
    notes: list[str],
    callbacks: list[Callback],
    report: bool,
    given: list[Table] | None,
    interrupt: Interrupt | None = None,
) -> None:
    """Train and evaluate, from the last checkpoint if there is one.

    `given` is what was set for a new run; None for one whose folder says what it is.
    """
    new = given is not None
    with ranks(device) as here, explained(folder.path), _deterministic(config.deterministic):
        console = console if here.is_main else None
        with _busy(console, "preparing the model"):
            hooks = find_method(config.method)
            run = build_run(config, hooks, dataset, folder, here, workers)
        followers = Followers(callbacks if here.is_main else [], console)
        table = folder.read_run() if given is None else run_table(config, hooks, dataset, given)
        if new and here.is_main:
            folder.create(table)
        announce(console, config, dataset, folder, here.device, notes)
        with (
            nothing_left_behind(folder, new and here.is_main),
            followers.of(folder, table),
        ):
            Loop(run, followers, interrupt, console).train()
            outputs = finish(run)
        if report and outputs is not None:
            with _busy(console, "writing the report"):
                _report(folder, run.model.head, *outputs, dataset, console)


def _report(
    folder: RunFolder,
    head: Head,
    features: Tensor,
    logits: Tensor,
    dataset: Dataset,
    console: Console | None,
) -> None:
    """The page of a run; the run is whole without it."""
    try:
        page = report_on(folder.path, head, features, logits, dataset)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        warn(
            console,
            f"the report could not be written ({reason}), the run is whole; try again with: "
            f"wcdas report {shlex.quote(str(folder.path))}",
        )
    else:
        if console is not None:
            console.print(f"report: {page}", highlight=False, markup=False)


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _busy(console: Console | None, what: str) -> AbstractContextManager[Any]:
    """On a terminal, a sign of life while there is nothing to count."""
    return nullcontext() if console is None else console.status(what)


def _configure(
    dataset: Dataset,
    source: str | Path | HuggingFace,
    method: str,
    layers: list[Table],
    seed: int | None,
    kind: str,
    skip_bad: bool,
) -> tuple[Config, list[str]]:
    chosen: Table = {"weights": ""} if dataset.name in list_recipes() else {}
    for layer in layers:
        chosen |= layer.get("backbone", {})
    table, notes = automatic(dataset, kind, chosen)
    config = resolve(method, dataset.name, layers, table, seed)
    if isinstance(dataset.train, FeatureVectors):
        check_effect_on_features(layers)
        stages = {name: replace(stage, augment="none") for name, stage in config.stages.items()}
        config = replace(config, stages=stages)
    data = placed(config.data) | {"source": place(source)}
    if skip_bad:
        data["skip_bad"] = True
    if data["source"] in list_datasets() and data["source"] != "digits-lt":
        data.setdefault("root", place(os.environ.get("WCDAS_DATA") or "data"))
    return replace(
        config,
        data=data,
        input_size=config.input_size or dataset.input_size,
    ), [*notes, *single_step(config, dataset)]


def _stored(out: str | Path | None) -> tuple[Table, RunFolder]:
    if out is None:
        raise InputError("--resume needs to know which run; name its folder with --out")
    folder = RunFolder(Path(out))
    return folder.read_run(), folder

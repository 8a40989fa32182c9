"""Train, sweep and check data in one call each."""

import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from wcdas.checks import need
from wcdas.data import HuggingFace
from wcdas.data.dataset import Dataset
from wcdas.data.description import describe, duplicates
from wcdas.data.mirroring import decide_mirroring
from wcdas.data.sources import open_data
from wcdas.deploy import Model, load
from wcdas.errors import InputError, InterruptedRunError
from wcdas.evaluation import result_table
from wcdas.files import locked
from wcdas.integrations import create_callbacks
from wcdas.interrupt import Interrupt, number_of
from wcdas.methods import find_method
from wcdas.processes import (
    Ranks,
    agreed,
    choose_device,
    on_device,
    ranks,
    recalled,
    remember,
    restarts,
    spare_cores,
    stopped_with_others,
)
from wcdas.report import report_on
from wcdas.run.automatic import threads_for
from wcdas.run.build import build_run
from wcdas.run.callbacks import Callback, Followers
from wcdas.run.console import announce, busy, tell, warn
from wcdas.run.finish import Outputs, finish
from wcdas.run.folder import (
    WAIT,
    RunFolder,
    check_free,
    check_unused,
    failures_explained,
    new_folder,
    nothing_left_behind,
    run_table,
)
from wcdas.run.frozen import FrozenDataset, compute_features, freeze, frozen_for
from wcdas.run.loop import Loop
from wcdas.run.phases import Phases
from wcdas.run.recipes import Settings, data_settings
from wcdas.run.settings import (
    Request,
    Source,
    check_effect,
    check_keys,
    read_request,
    same_data,
    same_teacher,
    seen_by,
    short_name,
    unchanged,
)
from wcdas.run.spec import Config, Table
from wcdas.sweeps import Asked, Sweep, run_sweep
from wcdas.sweeps.checks import (
    begin,
    check_buildable,
    check_known,
    check_loggers,
    check_parallel,
    files_of,
    settled,
)
from wcdas.sweeps.execute import in_processes, runs_at_a_time, shared_workers, train_command
from wcdas.sweeps.folder import again
from wcdas.threads import with_threads

if TYPE_CHECKING:
    from wcdas.sweeps.cluster import Cluster


@dataclass(frozen=True)
class Run:
    """A finished run; stands for its folder wherever a path is expected."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the last epoch, as metrics.json holds them."""
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
        report: write report.html at the end; `write_report` does it later.
        console: where progress is shown; None is silent.
    """
    around = Surroundings(workers, create_callbacks(callbacks), report, console)
    request = read_request(recipe, settings, method, seed)
    if resume:
        with ranks(device) as here:
            return _resume(out, request, data, skip_bad, here, around)
    source = request.data.get("source", "digits-lt") if data is None else data
    name = short_name(source)
    check_keys(request.layers, request.method)
    check_effect([(request.check(name), request.layers)])  # before images are read
    if out is not None and not restarts():
        check_free(Path(out))
    with ranks(device) as here:
        if begun := agreed(here, lambda: _begun_before(out)):
            return _resume(begun, request, data, skip_bad, here, around)
        with busy(console, "reading the data"), around.phases("data"):
            opened = _open(source, request.data, skip_bad, name)
            dataset = request.ask_about_mirroring(opened)
            config, notes = agreed(
                here, lambda: request.resolve(dataset, source, here.device, skip_bad)
            )
        check_effect([(config, request.layers)])
        run_name = f"{name}-{config.method}-s{config.seed}"
        # By the first process, before it makes the folder.
        folder = RunFolder(agreed(here, lambda: _chosen_folder(out, run_name)))
        count, why = threads_for(config, here.device.type, dataset.num_classes)
        notes += [why] if why else []
        seen = seen_by(config, dataset)
        _train(config, seen, folder, here, around, count, request.given, notes)
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
    ray: str | None = None,
) -> Sweep:
    """Train methods with several seeds under one protocol and compare them in one table.

    A run that fails does not stop the others; `failed` of what is returned names it.

    Args:
        data: as for `train`.
        methods: names of `list_methods()`, as a list or as "a,b,c"; the recipe's without them.
        seeds: how many, from 0 on; 3 without it.
        parallel: runs at a time. Without it, on a GPU that holds small images, as many as fit and
            8 at most; else one. With `ray` on each GPU, or on each machine without.
        recipe: as for `train`.
        settings: as for `train`; a stage or an option is set for the methods that have it.
        out: the sweep's folder; `runs/<data>-sweep-<n>` without it.
        resume: go on with the sweep in `out`; methods and seeds may be added.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images for a run; all cores but one, shared by the runs at
            work, without it.
        skip_bad: leave unreadable images out.
        callbacks: who follows each run: "tensorboard", "wandb", "mlflow".
        report: write report.html at the end; `write_report` does it later.
        console: where progress is shown; None is silent.
        ray: do the runs on the machines of a Ray cluster: its HOST:PORT, "auto" for the one that
            this machine belongs to, "local" for all GPUs of this machine.
    """
    check_loggers(callbacks)
    check_parallel(parallel)
    chosen = choose_device(device)
    asked = Asked(data, methods, seeds, recipe, settings, skip_bad)
    plan, folder, stored = begin(asked, out, resume)
    if stored is not None and not folder.unfinished(plan):
        folder.write_results(plan, {})
        return Sweep(folder.path)
    if ray is not None:
        check_known(plan, "other machines", "leave --ray out")
    with _cluster(ray, device, chosen) as cluster:
        with busy(console, "reading the data"):
            dataset = _open(plan.source, plan.data, plan.skip_bad, short_name(plan.source))
            requests = {method: plan.request(method) for method in plan.methods}
            for request in requests.values():
                dataset = request.ask_about_mirroring(dataset)
            resolved = {
                method: request.resolve(dataset, plan.source, chosen, plan.skip_bad, parallel or 1)
                for method, request in requests.items()
            }
            configs = {method: config for method, (config, _) in resolved.items()}
            plan, configs = settled(plan, configs, dataset, folder, stored)
        files = files_of(configs)
        if cluster is not None:
            with busy(console, "looking at the machines"):
                cluster.check(folder.path.absolute(), files)
        with busy(console, "preparing the models"):
            readers = spare_cores() if workers is None else workers
            trained_on = frozen_for(configs, dataset, readers)
            one = trained_on[plan.methods[0]]
            left = len(folder.unfinished(plan))
            at_a_time = runs_at_a_time(parallel, left, device, one)
            apart = cluster is None and in_processes(at_a_time, device, one)
            if apart:
                check_known(plan, f"the processes of parallel={at_a_time}", "use parallel=1")
            weights = check_buildable(configs, trained_on, folder, readers)
        for features in dict.fromkeys(trained_on.values()):
            if isinstance(features, FrozenDataset):
                compute_features(features, Ranks(0, 1, chosen), readers, console)
        # Most notes are of the data, so that all methods have the same.
        notes = dict.fromkeys(note for _, of_method in resolved.values() for note in of_method)
        count, why = threads_for(configs[plan.methods[0]], chosen.type, dataset.num_classes)
        if count is not None:
            present = count if cluster is None else min(count, cluster.cpus)
            count = folder.threads(plan) or max(1, present // at_a_time)
        notes |= {why: None} if why else {}
        if parallel is not None and at_a_time < parallel:
            more = "since more than these gain nothing on one GPU"
            notes[f"{at_a_time} runs at a time, {more}"] = None
        room = None
        if cluster is not None:
            from wcdas.sweeps.runner import share_out

            room = share_out(cluster, left, parallel, at_a_time, count or 1, files)
            workers = room.cpus - 1 if workers is None else workers
            notes[room.told] = None
        workers = shared_workers(workers, at_a_time)
        kind = device if room is None else chosen.type  # whatever another machine would choose
        command = partial(train_command, kind, workers, callbacks, report)

        def train_run(config: Config, run: RunFolder, interrupt: Interrupt | None) -> None:
            around = Surroundings(workers, create_callbacks(callbacks), report)
            features = trained_on[config.method]
            frozen = features if isinstance(features, FrozenDataset) else None
            here, threads = Ranks(0, 1, chosen), run.read_run()["info"].get("threads")
            _train(
                config, dataset, run, here, around, threads, interrupt=interrupt, features=frozen
            )

        with on_device(chosen):
            run_sweep(
                plan,
                configs,
                dataset,
                folder,
                train_run,
                command if apart or room is not None else None,
                at_a_time,
                count,
                console,
                list(notes),
                weights,
                room,
                again(folder.path, ray),
            )
    return Sweep(folder.path, ray)


def _cluster(
    ray: str | None, device: str, chosen: torch.device
) -> "AbstractContextManager[Cluster | None]":
    """Connect to a Ray cluster, if that is asked for."""
    if ray is None:
        return nullcontext()
    need("ray", "ray")
    from wcdas.sweeps.cluster import joined

    return joined(ray, device, chosen)


def check_data(
    data: str | Path | HuggingFace,
    settings: Settings = None,
    skip_bad: bool = False,
) -> Iterator[str]:
    """Describe a dataset before anything is trained on it, line by line.

    Args:
        data: what `train` would be given.
        settings: options of the data: {"data.root": "images"} or ["data.root=images"].
        skip_bad: leave unreadable images out.

    Raises:
        InputError: at the end, if there are unreadable images that are not to be left out.
    """
    options = data_settings(settings)
    try:
        dataset = open_data(data, options, skip_bad=True)
    except InputError:
        if not skip_bad:
            open_data(data, options)  # names the bad images, if too few are left because of them
        raise
    yield from describe(decide_mirroring(dataset), every_bad=True)
    yield from duplicates(dataset)
    if dataset.bad and not skip_bad:
        images = len(dataset.train) + len(dataset.test) + len(dataset.bad)
        raise InputError(
            f"{len(dataset.bad)} of {images} images cannot be used; remove them, or leave them out "
            "with --skip-bad"
        )


@dataclass(frozen=True)
class Surroundings:
    """All that a run is done with: worker processes, followers, report, console, and the time that
    it takes."""

    workers: int | None
    callbacks: Sequence[Callback]
    report: bool
    console: Console | None = None
    phases: Phases = field(default_factory=Phases)


def _begun_before(out: str | Path | None) -> Path | None:
    """Return the folder of the run that torchrun has restarted, if the run had begun."""
    begun = (out or recalled("folder")) if restarts() else None
    return Path(begun) if begun and RunFolder(Path(begun)).exists else None


def _chosen_folder(out: str | Path | None, name: str) -> Path:
    """Choose the folder of a new run; torchrun remembers it, should it restart the run."""
    path = new_folder(out, name)
    remember("folder", str(path))
    return path


def _resume(
    out: str | Path | None,
    request: Request,
    data: Source | None,
    skip_bad: bool,
    here: Ranks,
    around: Surroundings,
) -> Run:
    """Go on with a run as it was started; what is given now may not say otherwise."""
    if out is None:
        raise InputError("--resume needs to know which run; name its folder with --out")
    folder = RunFolder(Path(out))
    if folder.path.is_file():
        raise InputError(f"--out is {out}, a file; expected the folder of a run to go on with")
    stored = folder.read_run()
    if here.is_main:
        check_unused(folder.path)
    config = unchanged(stored, request, data)
    count, finished = stored["info"].get("threads"), folder.is_finished
    if data is not None or not finished:
        source = config.data["source"]
        with busy(around.console, "reading the data"), around.phases("data"):
            opened = source if data is None else data
            dataset = _open(opened, config.data, skip_bad, short_name(source))
        same_data(stored, dataset)
    if not finished:
        notes = []
        if count not in (None, torch.get_num_threads()):
            notes = [f"threads: {count}, as when the run began, for the same numbers"]
        if not folder.has_checkpoint:
            notes += ["there is no checkpoint yet, so the run starts over"]
        _train(config, dataset, folder, here, around, threads=count, notes=notes)
    return Run(folder.path)


def _train(
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    here: Ranks,
    around: Surroundings,
    threads: int | None,
    given: Sequence[Table] | None = None,
    notes: Sequence[str] = (),
    interrupt: Interrupt | None = None,
    features: FrozenDataset | None = None,
) -> None:
    """Train, evaluate and report, from the last checkpoint if there is one.

    `threads` are those of a CPU, None as they are. `given` is what was set for a new run; None for
    one whose folder says what it is. `features` are those of a frozen network, where they are
    computed already.
    """
    present = torch.get_num_threads()
    with (
        failures_explained(folder.path),
        _deterministic(config.deterministic),
        with_threads(threads),
    ):
        console, phases = around.console if here.is_main else None, around.phases
        workers = spare_cores() if around.workers is None else around.workers
        stored = folder.read_run() if given is None else None
        if stored is not None:
            same_teacher(stored)
        with busy(console, "preparing the model"), phases("model"):
            method = find_method(config.method)
            trained_on = features or dataset
            if config.frozen and features is None:
                trained_on = freeze(config, dataset, workers)
            run = build_run(config, method, trained_on, folder, here, workers)
        frozen = trained_on.network if isinstance(trained_on, FrozenDataset) else None
        weights = (frozen or run.model.backbone).weights_from
        table = stored or run_table(config, dataset, given or (), threads, weights)
        created = given is not None and here.is_main
        if created:
            folder.claim()
        announce(console, config, dataset, folder, here.device, weights, notes)
        followers = Followers(around.callbacks if here.is_main else [], console)
        alone = locked(folder.path, WAIT) if here.is_main else nullcontext()
        with alone, nothing_left_behind(folder, created), stopped_with_others():
            if features is None and isinstance(trained_on, FrozenDataset):
                with phases("features"), with_threads(present):  # which look at images apart
                    compute_features(trained_on, here, workers, console)
            if created:
                folder.create(table)
            with busy(console, "decoding the images"), phases("decoding"):
                _ = run.train_images, run.test_images
            with followers.of(folder, table):
                with phases("training"):
                    seen = Loop(run, followers, interrupt, console, phases).train()
                with phases("evaluation"):
                    outputs = finish(run, seen)
        if around.report and outputs is not None:
            with busy(console, "writing the report"), phases("report"):
                _report(folder, outputs, dataset, console)
        if here.is_main:
            folder.write_seconds(phases.table())
            tell(console, f"time: {phases}")


def _report(folder: RunFolder, outputs: Outputs, dataset: Dataset, console: Console | None) -> None:
    """Write the page of a run; the run is whole without it."""
    later = f"wcdas report {shlex.quote(str(folder.path))}"
    try:
        page = report_on(folder.path, *outputs, dataset)
    except KeyboardInterrupt as stop:
        raise InterruptedRunError(
            f"stopped; the run is whole, its report is written with: {later}", number_of(stop)
        ) from None
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        warn(
            console,
            f"the report could not be written ({reason}), the run is whole; try again with: "
            f"{later}",
        )
    else:
        tell(console, f"report: {page}")


def _open(source: Source, options: Mapping[str, Any], skip_bad: bool, name: str) -> Dataset:
    return replace(open_data(source, options, skip_bad), name=name)


class _Deterministic:
    """PyTorch's switch is the process's: of runs in several threads it is on while one wants it,
    and at the end as it was before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted: list[bool] = []  # by the runs at work
        self.before = False

    @contextmanager
    def __call__(self, wanted: bool) -> Iterator[None]:
        with self.lock:
            if not self.wanted:
                self.before = torch.are_deterministic_algorithms_enabled()
            self.wanted.append(wanted)
            torch.use_deterministic_algorithms(any(self.wanted))
        try:
            yield
        finally:
            with self.lock:
                self.wanted.remove(wanted)
                left = any(self.wanted) if self.wanted else self.before
                torch.use_deterministic_algorithms(left)


_deterministic = _Deterministic()

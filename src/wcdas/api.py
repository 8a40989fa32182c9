"""Train, evaluate and load in one call each."""

import inspect
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import wcdas
from wcdas.backbones import create_backbone
from wcdas.data import open_dataset
from wcdas.data.dataset import Dataset
from wcdas.data.loader import channel_statistics
from wcdas.data.random import stream
from wcdas.data.report import describe, duplicates
from wcdas.deploy import Model, load
from wcdas.errors import InputError
from wcdas.evaluation import evaluate, fit_temperature, result_table
from wcdas.heads import create_head
from wcdas.names import unknown
from wcdas.recipes import parse_settings, read_recipe, resolve
from wcdas.recipes.automatic import automatic
from wcdas.training.config import Config, as_table, build, flat
from wcdas.training.distributed import Ranks, choose_device, ranks
from wcdas.training.model import Classifier
from wcdas.training.model_file import ModelInfo, save_model
from wcdas.training.prior import trained_prior
from wcdas.training.run_folder import RunFolder, explained, next_folder
from wcdas.training.trainer import Trainer

Table = dict[str, Any]
INITIAL = 1_004  # what a stream of random numbers is for


@dataclass(frozen=True)
class Run:
    """A finished run."""

    path: Path

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return RunFolder(self.path).read_metrics()

    @cached_property
    def model(self) -> Model:
        return load(self.path)

    def table(self) -> str:
        """Accuracy of the last epoch by group, as text."""
        return result_table({self.metrics["method"]: self.metrics})


def train(
    data: str | Path | None = None,
    method: str | None = None,
    *,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | list[str] | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    workers: int | None = None,
    skip_bad: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a classifier on long-tailed images, evaluate it, and leave everything in a folder.

    Args:
        data: a dataset's name, a folder of class folders, a list file, Parquet or features;
            `digits-lt` without it.
        method: a name of `list_methods()`; `wcdas` without it.
        recipe: a shipped recipe's name or a TOML file.
        settings: single values over the recipe, as dotted paths: {"epochs": 50} or ["epochs=50"].
        seed: of everything random; 0 without it.
        out: the run's folder; `runs/<data>-<method>-s<seed>-<n>` without it.
        resume: go on with the run in `out`.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images; all cores but one without it.
        skip_bad: leave unreadable images out.
        console: where progress is shown; None is silent.
    """
    if settings is None or isinstance(settings, Mapping):
        settings = [f"{key}={_as_toml(value)}" for key, value in (settings or {}).items()]
    layers = ([read_recipe(recipe)] if recipe else []) + [parse_settings(settings)]
    stored: Table | None = None
    if resume:
        stored, folder = _stored(out)
        config = _unchanged(stored, data, method, layers, seed)
        if folder.is_finished:
            return Run(folder.path)
        dataset = _open(config.data["source"], config.data, skip_bad)
        _same_data(stored, dataset)
        notes: list[str] = []
    else:
        source = str(data or "digits-lt")
        given: Table = {}
        for layer in layers:
            given |= layer.get("data", {})
        dataset = _open(source, given, skip_bad)
        config, notes = _configure(dataset, source, method or "wcdas", layers, seed, device)
        path = Path(out) if out else next_folder(dataset.name, config.method, config.seed)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(
                f"the output folder {path} is not empty; go on with --resume or choose another"
            )
        folder = RunFolder(path)
    with ranks(device) as place, explained(folder.path):
        console = console if place.is_main else None
        torch.use_deterministic_algorithms(config.deterministic)
        trainer = _trainer(config, dataset, folder, place, workers, console)
        if stored is None and place.is_main:
            folder.create(_run_table(config, dataset))
        _announce(console, config, dataset, folder, place, notes)
        trainer.run()
        _finish(trainer)
    return Run(folder.path)


def check_data(
    data: str | Path, settings: Sequence[str] = (), skip_bad: bool = False
) -> Iterator[str]:
    """What there is to know about a dataset before training on it, line by line."""
    options = parse_settings(settings)
    for key in options:
        if key != "data":
            raise InputError(f"--set got {key!r}; expected data.… here, such as data.root=DIR")
    dataset = _open(str(data), options.get("data", {}), skip_bad)
    yield from describe(dataset)
    yield from duplicates(dataset)


def _open(source: str, options: Mapping[str, Any], skip_bad: bool) -> Dataset:
    known = set(inspect.signature(open_dataset).parameters) - {"data", "skip_bad"}
    options = {key: value for key, value in options.items() if key != "source"}
    for key in options:
        if key not in known:
            raise InputError(str(unknown("key", f"data.{key}", [f"data.{k}" for k in known])))
    return open_dataset(source, skip_bad=skip_bad, **options)


def _configure(
    dataset: Dataset, source: str, method: str, layers: list[Table], seed: int | None, device: str
) -> tuple[Config, list[str]]:
    chosen: Table = {}
    for layer in layers:
        chosen |= layer.get("backbone", {})
    table, notes = automatic(dataset, choose_device(device).type, chosen)
    config = resolve(method, dataset.name, layers, table, seed)
    return replace(
        config,
        data=dict(config.data) | {"source": _place(source)},
        input_size=config.input_size or dataset.input_size,
    ), notes


def _trainer(
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    place: Ranks,
    workers: int | None,
    console: Console | None,
) -> Trainer:
    torch.manual_seed(stream(config.seed, INITIAL))
    backbone = create_backbone(
        config.backbone.name,
        channels=dataset.channels,
        input_size=config.input_size,
        weights=config.backbone.weights or None,
    )
    options = {key: value for key, value in config.head.items() if key != "name"}
    try:
        head = create_head(
            config.head["name"],
            backbone.num_features,
            dataset.num_classes,
            dataset.class_counts,
            **options,
        )
    except ValueError as error:
        raise InputError(str(error)) from None
    if workers is None:
        workers = max(0, (os.cpu_count() or 1) - 1)
    size, channels = config.input_size, dataset.channels
    if backbone.mean is not None and backbone.std is not None:
        mean, std = list(backbone.mean), list(backbone.std)
    else:
        mean, std = channel_statistics(dataset.train, channels, size, workers)
    loading = {"size": size, "channels": channels, "mean": mean, "std": std, "workers": workers}
    model = Classifier(backbone, head)
    return Trainer(config, dataset, model, loading, folder, place, console)


def _finish(trainer: Trainer) -> None:
    """Fit the temperature, measure the last epoch, write the model."""
    config, dataset = trainer.config, trainer.dataset
    held_out = trainer.held_out_logits()
    temperature = fit_temperature(*held_out) if len(held_out[1]) else 1.0
    logits = trainer.logits(dataset.test) / temperature
    if not trainer.ranks.is_main:
        return
    counts, names = dataset.class_counts, dataset.class_names
    metrics = evaluate(logits, dataset.test.labels, counts, names)
    own = config.stages[list(config.stages)[-1]].head
    changed = own not in ("keep", "fresh")
    info = ModelInfo(
        backbone=config.backbone.name,
        head=own if changed else config.head["name"],
        head_options={} if changed else {k: v for k, v in config.head.items() if k != "name"},
        class_names=names,
        class_counts=counts.tolist(),
        channels=dataset.channels,
        input_size=config.input_size,
        mean=trainer.loading["mean"],
        std=trainer.loading["std"],
        temperature=temperature,
        prior=trained_prior(list(config.stages.values())[-1]),
        method=config.method,
        dataset=dataset.name,
    )
    save_model(trainer.folder.model, trainer.model, info)
    facts = {"method": config.method, "dataset": dataset.name, "temperature": temperature}
    trainer.folder.write_metrics(facts | metrics)


def _run_table(config: Config, dataset: Dataset) -> Table:
    versions = {"wcdas": wcdas.__version__, "torch": torch.__version__}
    info = {
        "fingerprint": dataset.fingerprint,
        "prior": trained_prior(list(config.stages.values())[-1]),
        "class_counts": dataset.class_counts.tolist(),
        "data": dataset.description,
        "versions": versions | {"python": platform.python_version()},
    }
    return as_table(config) | {"info": info}


def _stored(out: str | Path | None) -> tuple[Table, RunFolder]:
    if out is None:
        raise InputError("--resume needs to know which run; name its folder with --out")
    folder = RunFolder(Path(out))
    return folder.read_run(), folder


def _unchanged(
    stored: Table,
    data: str | Path | None,
    method: str | None,
    layers: list[Table],
    seed: int | None,
) -> Config:
    """The stored configuration, refused if what is given now differs from it."""
    table = {key: value for key, value in stored.items() if key != "info"}
    wanted = flat(table)
    now = dict(wanted)
    for layer in layers:
        for key, value in flat(layer).items():
            stage_keys = [f"stages.{name}.{key}" for name in table["stages"]]
            for full_key in stage_keys if stage_keys[0] in wanted else [key]:
                now[full_key] = value
    if data is not None:
        now["data.source"] = _place(data)
    now |= {} if method is None else {"method": method}
    now |= {} if seed is None else {"seed": seed}
    changes = [f"{k}: {wanted.get(k)} → {v}" for k, v in now.items() if wanted.get(k) != v]
    if changes:
        raise InputError(
            f"the run was started otherwise ({'; '.join(changes[:5])}); "
            "resume it as it was, or start a new one with another --out"
        )
    return build(table)


def _same_data(stored: Table, dataset: Dataset) -> None:
    if stored["info"]["fingerprint"] != dataset.fingerprint:
        before, now = stored["info"]["class_counts"], dataset.class_counts.tolist()
        raise InputError(
            f"the data has changed since the run started ({sum(before)} training images in "
            f"{len(before)} classes then, {sum(now)} in {len(now)} now, or other contents); "
            "restore it, or start a new run with another --out"
        )


def _announce(
    console: Console | None,
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    place: Ranks,
    notes: list[str],
) -> None:
    if console is None:
        return
    for line in (*describe(dataset), *(f"note: {note}" for note in notes)):
        console.print(line, highlight=False)
    head = config.head["name"]
    size = f" at {config.input_size} px" if config.input_size else ""
    console.print(f"{config.method}: {config.backbone.name}{size} with head {head}, {place.device}")
    for name, stage in config.stages.items():
        flip = " with flip" if config.augment.flip and stage.augment != "none" else ""
        mixed = "".join(f", {k} {v:g}" for k in ("mixup", "cutmix") if (v := getattr(stage, k)))
        console.print(
            f"  {name}: {stage.epochs} epochs, {stage.sampler} sampling, rate {stage.lr:g}, "
            f"augmentation {stage.augment}{flip}{mixed}",
            highlight=False,
        )
    console.print(f"run folder: {folder.path}", highlight=False)


def _place(data: str | Path) -> str:
    """A dataset's name, or the full path of one's own data."""
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() else str(data)


def _as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) else str(value)

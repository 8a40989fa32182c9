"""Train, evaluate and load in one call each."""

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import wcdas
from wcdas.backbones import create_backbone
from wcdas.data import list_datasets
from wcdas.data.dataset import Dataset
from wcdas.data.loader import channel_statistics
from wcdas.data.random import stream
from wcdas.data.report import describe, duplicates
from wcdas.deploy import Model, load
from wcdas.deploy.opening import open_data
from wcdas.deploy.splits import left_out
from wcdas.errors import InputError
from wcdas.evaluation import evaluate, fit_temperature, result_table
from wcdas.heads import create_head
from wcdas.methods import METHODS
from wcdas.names import unknown
from wcdas.recipes import EVERY_STAGE, parse_settings, read_recipe, resolve
from wcdas.recipes.automatic import automatic
from wcdas.training.config import Config, as_table, build, flat
from wcdas.training.distributed import Ranks, choose_device, ranks
from wcdas.training.model import Classifier
from wcdas.training.model_file import ModelInfo, save_model
from wcdas.training.prior import trained_prior
from wcdas.training.run_folder import RunFolder, explained, next_folder
from wcdas.training.trainer import Trainer

Table = dict[str, Any]
Settings = Mapping[str, Any] | Sequence[str] | None
INITIAL = 1_004  # what a stream of random numbers is for


@dataclass(frozen=True)
class Run:
    """A finished run; stands for its folder wherever a path is expected."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

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
    settings: Settings = None,
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
    layers, method = _layers(recipe, settings, method)
    kind = choose_device(device).type
    stored: Table | None = None
    notes: list[str] = []
    if resume:
        stored, folder = _stored(out)
        _check_keys(layers, method or stored["method"])
        config = _unchanged(stored, data, method, layers, seed)
        if folder.is_finished:
            return Run(folder.path)
        with _busy(console, "reading the data"):
            dataset = open_data(config.data["source"], config.data, skip_bad or left_out(stored))
        _same_data(stored, dataset)
    else:
        method = method or "wcdas"
        _check_keys(layers, method)
        resolve(method, "", layers, {}, seed)  # a bad value is refused before images are read
        if out is not None:
            _check_free(Path(out))
        options = _data_options(layers)
        source = str(data or options.get("source") or "digits-lt")
        with _busy(console, "reading the data"):
            dataset = open_data(source, options, skip_bad)
            config, notes = _configure(dataset, source, method, layers, seed, kind)
        path = Path(out) if out else next_folder(_short(source), method, config.seed)
        _check_free(path)
        folder = RunFolder(path)
    with ranks(device) as place, explained(folder.path), _deterministic(config.deterministic):
        console = console if place.is_main else None
        with _busy(console, "preparing the model"):
            trainer = _trainer(config, dataset, folder, place, workers, console)
        if stored is None and place.is_main:
            folder.create(_run_table(config, dataset))
        _announce(console, config, dataset, folder, place, notes)
        with _nothing_left_behind(folder, stored is None and place.is_main):
            trainer.run()
            _finish(trainer)
    return Run(folder.path)


def check_data(
    data: str | Path,
    settings: Settings = None,
    skip_bad: bool = False,
) -> Iterator[str]:
    """What there is to know about a dataset before training on it, line by line.

    Args:
        data: what `train` would be given.
        settings: options of the data: {"data.root": "images"} or ["data.root=images"].
        skip_bad: leave unreadable images out.
    """
    dataset = open_data(data, data_options(settings), skip_bad)
    yield from describe(dataset)
    yield from duplicates(dataset)


def data_options(settings: Settings) -> Table:
    """The options of a dataset from settings that may hold nothing else."""
    table = parse_settings(_as_list(settings))
    for key in table:
        if key != "data":
            raise InputError(f"--set got {key!r}; expected data.… here, such as data.root=DIR")
    return _data_options([table])


def _layers(
    recipe: str | Path | None, settings: Settings, method: str | None
) -> tuple[list[Table], str | None]:
    """The tables given over the shipped recipe, and the method they name; later wins."""
    layers = []
    if recipe is not None:
        table = {key: value for key, value in read_recipe(recipe).items() if key != "info"}
        method = method or table.pop("method", None)
        table.pop("method", None)
        layers.append(table)
    table = parse_settings(_as_list(settings))
    method = table.pop("method", method)
    if method is not None and not isinstance(method, str):
        raise InputError(f"method is {method!r}; expected a name of `wcdas list methods`")
    return [*layers, table], method


def _check_keys(layers: list[Table], method: str) -> None:
    """Refuse an unknown method or key, bare `epochs` and the like being keys too."""
    if method not in METHODS:
        raise InputError(str(unknown("method", method, METHODS)))
    known = [item.name for item in fields(Config)] + list(EVERY_STAGE)
    for key in (key for layer in layers for key in layer):
        if key not in known:
            raise InputError(str(unknown("key", key, known)))


def _data_options(layers: list[Table]) -> Table:
    options: Table = {}
    for layer in layers:
        given = layer.get("data", {})
        if not isinstance(given, Mapping):
            raise InputError(f"data is {given!r}; expected data.KEY=VALUE, such as data.root=DIR")
        options |= given
    return options


def _check_free(path: Path) -> None:
    """The output folder is empty or not there yet, and can be written."""
    try:
        used = path.is_dir() and any(path.iterdir())
    except OSError as error:
        raise InputError(f"the output folder {path} cannot be read ({error.strerror})") from None
    if used:
        raise InputError(
            f"the output folder {path} is not empty; go on with --resume or choose another"
        )
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "no permission" if there.is_dir() else f"{there} is a file"
        raise InputError(
            f"the output folder {path} cannot be written ({reason}); choose another with --out"
        )


@contextmanager
def _nothing_left_behind(folder: RunFolder, created: bool) -> Iterator[None]:
    """Bad input that shows only in the first step leaves no run."""
    try:
        yield
    except InputError:
        if created and not any(folder.checkpoints.glob("*")):
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


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
    dataset: Dataset, source: str, method: str, layers: list[Table], seed: int | None, kind: str
) -> tuple[Config, list[str]]:
    chosen: Table = {}
    for layer in layers:
        chosen |= layer.get("backbone", {})
    table, notes = automatic(dataset, kind, chosen)
    config = resolve(method, dataset.name, layers, table, seed)
    data = _placed(config.data) | {"source": _place(source)}
    if source in list_datasets() and source != "digits-lt":
        data.setdefault("root", _place(os.environ.get("WCDAS_DATA") or "data"))
    return replace(
        config,
        data=data,
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
            str(config.head.get("name")),
            backbone.num_features,
            dataset.num_classes,
            dataset.class_counts,
            **options,
        )
    except (ValueError, TypeError) as error:
        raise InputError(f"head: {error}") from None
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
    info = ModelInfo(
        backbone=config.backbone.name,
        head=trainer.head_name,
        head_options=trainer.head_options,
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
        placed = layer | {"data": _placed(layer.get("data", {}))}
        for key, value in flat(placed).items():
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
        console.print(line, highlight=False, markup=False)
    head = config.head["name"]
    size = f" at {config.input_size} px" if config.input_size else ""
    console.print(f"{config.method}: {config.backbone.name}{size} with head {head}, {place.device}")
    for name, stage in config.stages.items():
        flip = " with flip" if config.augment.flip and stage.augment != "none" else ""
        mixed = "".join(f", {k} {v:g}" for k in ("mixup", "cutmix") if (v := getattr(stage, k)))
        console.print(
            f"  {name}: {stage.epochs} epoch{'s' * (stage.epochs > 1)}, {stage.sampler} sampling, "
            f"rate {stage.lr:g}, augmentation {stage.augment}{flip}{mixed}",
            highlight=False,
        )
    console.print(f"run folder: {folder.path}", highlight=False)


def _place(data: str | Path) -> str:
    """A dataset's name, or the full path of one's own data."""
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() else str(data)


def _placed(options: Mapping[str, Any]) -> Table:
    """Options of a dataset with full paths, so that a run can be taken up from anywhere."""
    paths = ("source", "root", "classes", "labels")
    return {k: _place(str(v)) if k in paths else v for k, v in options.items()}


def _short(source: str) -> str:
    """What a run's folder calls the data: a dataset's name, or that of the folder or file."""
    path = Path(_place(source))
    return (path.stem if path.is_file() else path.name) or "data"


def _as_list(settings: Settings) -> list[str]:
    if settings is None or isinstance(settings, Mapping):
        return [f"{key}={_as_toml(value)}" for key, value in (settings or {}).items()]
    return [settings] if isinstance(settings, str) else list(settings)


def _as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, Path)):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_toml, value))}]"
    return str(value)

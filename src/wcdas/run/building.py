"""From a configuration and a dataset to a trainer."""

import os

from rich.console import Console

from wcdas.backbones import Backbone, create_backbone
from wcdas.data.dataset import Dataset
from wcdas.data.loader import channel_statistics
from wcdas.errors import InputError, explained
from wcdas.heads import Head, create_head
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts
from wcdas.processes import Ranks
from wcdas.rng import seeded, stream
from wcdas.run.folder import RunFolder
from wcdas.run.spec import Config
from wcdas.run.trainer import Trainer

INITIAL = 1_004  # what a stream of random numbers is for


def create_trainer(
    config: Config,
    method: Method,
    dataset: Dataset,
    folder: RunFolder,
    place: Ranks,
    workers: int | None,
    console: Console | None,
) -> Trainer:
    with seeded(stream(config.seed, INITIAL)):
        backbone, model = _build(config, method, dataset)
    if workers is None:
        workers = max(0, (os.cpu_count() or 1) - 1)
    size, channels = config.input_size, dataset.channels
    if backbone.mean is not None and backbone.std is not None:
        mean, std = list(backbone.mean), list(backbone.std)
    else:
        mean, std = channel_statistics(dataset.train, channels, size, workers)
    loading = {"size": size, "channels": channels, "mean": mean, "std": std, "workers": workers}
    return Trainer(config, method, dataset, model, loading, folder, place, console)


def _build(config: Config, method: Method, dataset: Dataset) -> tuple[Backbone, Classifier]:
    backbone = create_backbone(
        config.backbone.name,
        channels=dataset.channels,
        input_size=config.input_size,
        weights=config.backbone.weights or None,
    ).attach_neck(config.neck.name, config.neck.features)
    parts = Parts(
        backbone,
        lambda length: _create_head(config, length, dataset),
        dataset.class_counts,
        config.options,
    )
    model = method.build_model(parts)
    if not isinstance(model, Classifier):
        raise InputError(
            f"build_model of {config.method} gave {type(model).__name__}; expected a Classifier"
        )
    return backbone, model


def _create_head(config: Config, length: int, dataset: Dataset) -> Head:
    options = {key: value for key, value in config.head.items() if key != "name"}
    name, counts = str(config.head.get("name")), dataset.class_counts
    with explained("head: "):
        return create_head(name, length, dataset.num_classes, counts, **options)

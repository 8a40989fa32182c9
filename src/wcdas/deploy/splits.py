"""The images of a dataset, and what a trained model makes of them."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcdas.data import HuggingFace
from wcdas.data.dataset import Dataset, FeatureVectors, Split
from wcdas.data.loader import EvalLoader
from wcdas.data.sources import open_data
from wcdas.deploy.model import Model
from wcdas.errors import InputError
from wcdas.run.folder import RunFolder
from wcdas.run.prediction import predict_split
from wcdas.run.settings import full_path, same_data, short_name


def dataset_for(
    model: Model,
    run: Path,
    data: str | Path | HuggingFace | None,
    options: Mapping[str, Any],
    skip_bad: bool = False,
) -> Dataset:
    """The dataset named, or the run's own; its classes must be the model's.

    The run's own data is refused if it has changed: another split would put training images
    among the test ones. Other data without a test set of its own is all test images.
    """
    stored = RunFolder(run).read_run() if run.is_dir() else None
    if data is None and stored is None:
        raise InputError(f"{run} is a model file and names no dataset; give one with --data")
    if stored is not None and (data is None or full_path(data) == stored["data"]["source"]):
        data = stored["data"]["source"] if data is None else data
        options = stored["data"] | dict(options)
        dataset = open_data(data, options, skip_bad)
        same_data(stored, dataset)
    else:
        assert data is not None
        dataset = open_data(data, options, skip_bad)
        if "split_seed" in dataset.description:
            dataset = replace(dataset, test=dataset.train.joined(dataset.test))
    dataset = replace(dataset, name=short_name(data))
    _check_kind(model, dataset, full_path(data))
    own = model.class_names
    missing = sorted(set(dataset.class_names) - set(own))
    if missing:
        raise InputError(
            f"{full_path(data)} has class {missing[0]!r}, which the model does not know; expected "
            f"only classes among its {len(own)}"
        )
    if dataset.class_names == own:
        return dataset
    index = torch.tensor([own.index(name) for name in dataset.class_names])
    train, test = (
        replace(split, labels=index[split.labels])  # type: ignore[type-var]
        for split in (dataset.train, dataset.test)
    )
    return replace(dataset, class_names=own, train=train, test=test)


def run_split(model: Model, split: Split, workers: int) -> tuple[Tensor, Tensor]:
    """(features, uncalibrated logits) of every image, on the CPU."""
    loader = EvalLoader(split, batch_size=256, workers=workers, **loader_options(model))
    with closing(loader):
        return predict_split(model.classifier, loader)


def loader_options(model: Model) -> dict[str, Any]:
    """The options of a loader that prepares images as the model takes them."""
    info = model.info
    return {
        "size": info.input_size,
        "channels": info.channels,
        "mean": info.mean,
        "std": info.std,
        "device": model.device,
    }


def _check_kind(model: Model, dataset: Dataset, data: str) -> None:
    """Features for a model of features, images for one of images."""
    features = isinstance(dataset.train, FeatureVectors)
    if model.takes_features and not features:
        raise InputError(f"the model takes feature vectors, but {data} holds images")
    if features and not model.takes_features:
        raise InputError(f"the model takes images, but {data} holds feature vectors")
    if features and dataset.channels != model.info.channels:
        raise InputError(
            f"{data} holds vectors of {dataset.channels} numbers; the model takes "
            f"{model.info.channels}. Embed it with the run the model's features came from"
        )

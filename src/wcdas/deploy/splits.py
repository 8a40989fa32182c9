"""What a trained model makes of a dataset's samples."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcdas.data import open_dataset
from wcdas.data.dataset import Dataset, FeatureVectors, Split
from wcdas.data.loader import EvalLoader
from wcdas.deploy.model import Model
from wcdas.errors import InputError
from wcdas.training.distributed import Ranks
from wcdas.training.prediction import predict_split
from wcdas.training.run_folder import RunFolder


def dataset_for(
    model: Model, run: Path, data: str | Path | None, options: dict[str, Any]
) -> Dataset:
    """The dataset named, or the run's own; its classes must be the model's."""
    if data is None:
        if not run.is_dir():
            raise InputError(f"{run} is a model file and names no dataset; give one with --data")
        stored = dict(RunFolder(run).read_run()["data"])
        data, options = stored.pop("source"), stored | options
    dataset = open_dataset(data, **options)
    own = model.class_names
    missing = sorted(set(dataset.class_names) - set(own))
    if missing:
        raise InputError(
            f"{data} has class {missing[0]!r}, which the model does not know; expected only "
            f"classes among its {len(own)}"
        )
    if not isinstance(dataset.train, FeatureVectors) and model.info.backbone == "identity":
        raise InputError(f"the model takes feature vectors, but {data} holds images")
    if dataset.class_names == own:
        return dataset
    index = torch.tensor([own.index(name) for name in dataset.class_names])
    return replace(
        dataset,
        class_names=own,
        train=_relabelled(dataset.train, index),
        test=_relabelled(dataset.test, index),
    )


def run_split(model: Model, split: Split, workers: int) -> tuple[Tensor, Tensor]:
    """(features, uncalibrated logits) of every sample, on the CPU."""
    info = model.info
    loader = EvalLoader(
        split,
        size=info.input_size,
        channels=info.channels,
        mean=info.mean,
        std=info.std,
        batch_size=256,
        device=model.device,
        workers=workers,
    )
    return predict_split(model.classifier, loader, Ranks(0, 1, model.device))


def _relabelled(split: Split, index: Tensor) -> Split:
    return replace(split, labels=index[split.labels])  # type: ignore[type-var]

"""A trained model, ready to predict images and datasets."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from wcdas.checks import check_whole
from wcdas.data import HuggingFace
from wcdas.data.dataset import Dataset, FeatureVectors, Split
from wcdas.data.images import (
    CENTRE_CROP_FROM,
    MAX_PIXELS,
    as_mode,
    evaluation_square,
    needed_side,
    open_image,
    to_pixels,
)
from wcdas.data.loader import EvalLoader
from wcdas.data.sources import open_data
from wcdas.errors import InputError
from wcdas.evaluation.posthoc import Logits, shift_prior
from wcdas.evaluation.predictions import most_probable
from wcdas.evaluation.prior import read_prior
from wcdas.evaluation.scores import Scores, as_scores, is_kept, logits_of
from wcdas.processes import choose_device
from wcdas.run.console import ImageProgress
from wcdas.run.folder import RunFolder, trained_model
from wcdas.run.inference import images_at_a_time, in_threads, memory_format
from wcdas.run.model_file import ModelInfo, load_model
from wcdas.run.prediction import predict_split
from wcdas.run.settings import full_path, same_data, short_name

Source = str | os.PathLike[str]  # a run, its folder or its model file
ImageSource = str | os.PathLike[str] | Image.Image


class Model:
    """A classifier with its class names, preprocessing, temperature and prior.

    Example:
        model = wcdas.load("runs/digits-lt-wcdas-prior-s0-1")
        probabilities = model.predict(["a.png", "b.png"])
    """

    def __init__(self, path: Path, device: str = "auto") -> None:
        self.device = choose_device(device)
        self.classifier, self.info = load_model(path)
        self.classifier.to(self.device)
        size, backbone = self.info.input_size, self.classifier.backbone
        self.memory_format = memory_format(backbone, size, self.device)
        backbone.to(memory_format=self.memory_format)  # type: ignore[call-overload]
        self.batch_size = images_at_a_time(size, self.device)

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, in the order of the probabilities."""
        return self.info.class_names

    @property
    def takes_features(self) -> bool:
        """Whether inputs are feature vectors instead of images."""
        return self.info.backbone == "identity"

    def preprocess(self, image: ImageSource) -> Tensor:
        """An image, or its file, as the classifier takes it: (channels, size, size).

        Turned upright, laid on white and brought to size as in training and evaluation.
        """
        info = self.info
        if self.takes_features:
            raise InputError(
                f"the model takes vectors of {info.channels} numbers, not images; "
                "compute them with the run its training features came from"
            )
        if not isinstance(image, (str, os.PathLike, Image.Image)):
            raise InputError(self._expected(image))
        if isinstance(image, Image.Image):
            upright = as_mode(image, info.channels)
        else:
            side = needed_side(info.input_size)
            upright = open_image(Path(image), info.channels, at_least=side)
        square = evaluation_square(upright, info.input_size, info.centre)
        pixels = to_pixels(square).float() / 255
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (info.mean, info.std))
        return (pixels - mean) / std

    def logits(self, inputs: Tensor, prior: str | None = None) -> Tensor:
        """Logits of preprocessed inputs over the temperature, for another class prior if given."""
        return self.calibrated(self._looked_at(inputs, self.classifier), prior)

    def scores(self, inputs: Tensor) -> Scores:
        """The same, where they are many computed when they are asked for."""
        head = self.classifier.head
        if is_kept(head, len(inputs)):
            return as_scores(self.logits(inputs))
        return self.calibrated(logits_of(head, self._looked_at(inputs, self.classifier.features)))

    def _looked_at(self, inputs: Tensor, network: Callable[[Tensor], Tensor]) -> Tensor:
        """What a network says of preprocessed inputs, in batches."""

        @torch.no_grad()
        def look(batch: Tensor) -> Tensor:
            batch = batch.to(self.device)
            if batch.dim() == 4:
                batch = batch.contiguous(memory_format=self.memory_format)
            return network(batch).float().cpu()

        parts = inputs.split(self.batch_size)
        return (
            torch.cat(list(in_threads(look, parts, self.device)))
            if len(parts) > 1
            else look(inputs)
        )

    def calibrated(
        self, logits: Logits, prior: str | None = None, temperature: float | None = None
    ) -> Logits:
        """Logits over the temperature, moved from the prior of training to another one."""
        logits = logits / (temperature or self.info.temperature)
        if prior is None:
            return logits
        return shift_prior(logits, self.prior(self.info.prior), self.prior(prior))

    def prior(self, given: str) -> Tensor:
        """The probabilities of a class prior to predict for: "uniform", "train" or a file's."""
        if self.info.prior == "none":
            raise InputError(
                f"the model was trained by {self.info.method}, whose logits follow no known class "
                "prior, so another cannot be put in its place; leave the prior out"
            )
        return read_prior(given, self.class_names, torch.tensor(self.info.class_counts))

    def predict(
        self,
        images: ImageSource | Sequence[ImageSource] | Tensor,
        prior: str | None = None,
        batch: int = 64,
    ) -> Tensor:
        """The probability of every class for every image, (images, classes).

        Args:
            images: files or PIL images; for a model of features a tensor (N, d).
            prior: "uniform", "train" or a file: the class mix to predict for.
            batch: images at a time.
        """
        shift = self.shift(prior)
        parts = [self.logits(inputs) + shift for inputs in self._batches(images, batch)]
        return torch.cat(parts).softmax(1) if parts else torch.zeros(0, len(self.class_names))

    def top(
        self,
        images: ImageSource | Sequence[ImageSource] | Tensor,
        k: int = 5,
        prior: str | None = None,
        batch: int = 64,
    ) -> tuple[Tensor, Tensor]:
        """The probabilities of the k most probable classes of every image, and these classes, the
        best first, both (images, k). Of a million classes the others are not kept.

        Args:
            images: as for `predict`.
            k: how many; all classes where there are fewer.
            prior: as for `predict`.
            batch: images at a time.
        """
        check_whole("k", k)
        k, shift = min(k, len(self.class_names)), self.shift(prior)
        parts = [
            most_probable(self.scores(inputs) + shift, k) for inputs in self._batches(images, batch)
        ]
        if not parts:
            return torch.zeros(0, k), torch.zeros(0, k, dtype=torch.int64)
        probabilities, classes = map(torch.cat, zip(*parts, strict=True))
        return probabilities, classes

    def shift(self, prior: str | None) -> Tensor:
        """What is added to the logits for another class prior, (classes,)."""
        return self.calibrated(torch.zeros(1, len(self.class_names)), prior)[0]

    def _batches(
        self, images: ImageSource | Sequence[ImageSource] | Tensor, batch: int
    ) -> Iterator[Tensor]:
        if isinstance(images, (str, os.PathLike, Image.Image)):
            images = [images]
        if isinstance(images, np.ndarray):
            raise InputError(self._expected(images))
        for at in range(0, len(images), batch):
            some = images[at : at + batch]
            if isinstance(some, Tensor):
                yield self._vectors(some)
            else:
                yield torch.stack([self.preprocess(image) for image in some])

    def _expected(self, given: object) -> str:
        """Say what the model takes in place of what it was given."""
        if self.takes_features:
            taken = f"a tensor (N, {self.info.channels}), such as torch.from_numpy(…)"
        else:
            taken = "files or PIL images, such as [PIL.Image.fromarray(…)]"
        return f"images are {type(given).__module__}.{type(given).__name__}; expected {taken}"

    def _vectors(self, inputs: Tensor) -> Tensor:
        length = self.info.channels
        if not self.takes_features:
            raise InputError("the model takes images; expected files or PIL images, not a tensor")
        if inputs.dim() != 2 or inputs.shape[1] != length:
            raise InputError(f"inputs have shape {tuple(inputs.shape)}; expected (N, {length})")
        return inputs.float()


def load(run: Source, device: str = "auto") -> Model:
    """The model of a run's folder or of a model file, which needs no other file.

    Args:
        run: a run, its folder, or its model.safetensors.
        device: auto, cpu, cuda or cuda:N.
    """
    return Model(trained_model(Path(run)), device)


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
    place = {name: index for index, name in enumerate(own)}
    index = torch.tensor([place[name] for name in dataset.class_names])
    train, test = (
        replace(split, labels=index[split.labels])  # type: ignore[type-var]
        for split in (dataset.train, dataset.test)
    )
    return replace(dataset, class_names=own, train=train, test=test)


def run_split(
    model: Model,
    split: Split,
    workers: int,
    console: Console | None = None,
    what: str = "evaluating",
) -> tuple[Tensor, Scores]:
    """(features, uncalibrated logits) of every image, on the CPU; a console shows how many are
    done."""
    options = loader_options(model) | {"batch_size": model.batch_size, "workers": workers}
    loader = EvalLoader(split, **options)
    with closing(loader), ImageProgress(console, what, len(split)) as progress:
        return predict_split(
            model.classifier, loader, between=lambda: progress.computed(model.batch_size)
        )


def loader_options(model: Model) -> dict[str, Any]:
    """The options of a loader that prepares images as the model takes them."""
    info = model.info
    return {
        "size": info.input_size,
        "channels": info.channels,
        "mean": info.mean,
        "std": info.std,
        "centre": info.centre,
        "device": model.device,
        "memory_format": model.memory_format,
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


def preprocessing(info: ModelInfo) -> dict[str, Any]:
    """`Model.preprocess` in words for other programs, in the order it is done."""
    if info.backbone == "identity":
        return {"input": "feature vectors", "length": info.channels}
    cut = info.input_size >= CENTRE_CROP_FROM
    return {
        "input": "images",
        "layout": "NCHW",
        "frame": "first",
        "decode": "JPEG at 1/2, 1/4 or 1/8 where both sides stay at "
        f"{needed_side(info.input_size)} pixels or more",
        "orientation": "turned upright as EXIF says",
        "transparency": "laid on white",
        "sixteen_bit": "scaled to 8 bits, 65535 to 255",
        "mode": "L" if info.channels == 1 else "RGB",
        "max_pixels": MAX_PIXELS,
        "crop": "central square, crop_fraction of the shorter side" if cut else "none",
        "crop_fraction": info.centre if cut else 1.0,
        "resize": [info.input_size, info.input_size],
        "interpolation": "bilinear, antialiased, as Pillow's Image.resize(size, BILINEAR, box)",
        "scale": 1 / 255,
        "mean": info.mean,
        "std": info.std,
    }

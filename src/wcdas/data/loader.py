"""Batches for training and evaluation: read, augmented, normalised, on the device."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wcdas.data import random
from wcdas.data.augment import Augmentation
from wcdas.data.dataset import ArrayImages, FeatureVectors, Split
from wcdas.data.samplers import rank_slice, whole_batches
from wcdas.data.sources import DecodedImages, Draw, open_source
from wcdas.errors import InputError

AUGMENT, CROP = 0, 1  # what the key of an epoch is used for
STATISTICS_FROM = 2000  # decoded pictures that mean and standard deviation are taken from


class Batch(NamedTuple):
    """One step's samples, all on the device; `positions` are places in the epoch's sequence."""

    step: int
    inputs: Tensor
    labels: Tensor
    indices: Tensor
    positions: Tensor


class Loader:
    """What training and evaluation share: a source, its labels, and the normalisation.

    Inputs are float32, (pixel / 255 − mean) / std; feature vectors are handed out as they are.
    """

    def __init__(
        self,
        split: Split,
        *,
        size: int,
        channels: int,
        mean: Sequence[float],
        std: Sequence[float],
        batch_size: int,
        device: torch.device | str = "cpu",
        workers: int = 0,
        rank: int = 0,
        world: int = 1,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        if len(split) == 0:
            raise InputError("there are no images to load")
        if not 0 <= rank < world:
            raise InputError(f"rank is {rank}; expected 0 to {world - 1}")
        if batch_size < 1:
            raise InputError(f"batch size is {batch_size}; expected at least 1")
        self.features = isinstance(split, FeatureVectors)
        if not self.features and (len(mean) != channels or len(std) != channels):
            raise InputError(
                f"mean has {len(mean)} and std {len(std)} values; expected {channels}, one each"
            )
        self.device = torch.device(device)
        self.source = open_source(split, size, channels, self.device, workers)
        self.labels = split.labels.to(self.device)
        self.mean = torch.tensor(mean, device=self.device).view(-1, 1, 1)
        self.std = torch.tensor(std, device=self.device).view(-1, 1, 1)
        self.batch_size, self.rank, self.world = batch_size, rank, world
        self.memory_format = memory_format

    def close(self) -> None:
        """End the worker processes, where there are any."""
        if isinstance(self.source, DecodedImages):
            self.source.close()

    def normalise(self, images: Tensor) -> Tensor:
        inputs = images.to(torch.float32, memory_format=self.memory_format)
        return inputs.div_(255).sub_(self.mean).div_(self.std)

    def batch(self, step: int, inputs: Tensor, draw: Draw) -> Batch:
        indices, positions = draw.indices.to(self.device), draw.positions.to(self.device)
        return Batch(step, inputs, self.labels[indices], indices, positions)


class TrainLoader(Loader):
    """The batches of an epoch, in the order of a sampler's sequence.

    `batch_size` is that of all processes together; each gets an equal slice of every batch.
    The other arguments are those of `Loader`.
    """

    def __init__(
        self,
        split: Split,
        *,
        augmentation: Augmentation,
        batch_size: int,
        world: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(split, batch_size=batch_size, world=world, **options)
        self.augmentation = augmentation
        self.steps = len(whole_batches(split.labels, batch_size, world))

    def epoch(self, sequence: Tensor, key: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from step `start` on; `key` decides the augmentation."""
        sequence = sequence.cpu()
        positions = whole_batches(torch.arange(len(sequence)), self.batch_size, self.world)[start:]
        own = [rank_slice(p, self.rank, self.world) for p in positions]
        draws = [Draw(sequence[p], p) for p in own]
        crop = self.augmentation.resized_crop and not self.features
        read = self.source.read(draws, random.stream(key, CROP) if crop else None)
        augment_key = random.stream(key, AUGMENT)
        for step, (inputs, draw) in enumerate(zip(read, draws, strict=True), start):
            if not self.features:
                inputs = self.augmentation(inputs, augment_key, draw.positions)
                inputs = self.normalise(inputs)
            yield self.batch(step, inputs, draw)


class EvalLoader(Loader):
    """Every image once, in file order; of several processes rank r sees r, r + world, …

    `batch_size` is that of this process.
    """

    def __iter__(self) -> Iterator[Batch]:
        own = torch.arange(self.rank, len(self.labels), self.world)
        draws = (
            [Draw(indices, indices) for indices in own.split(self.batch_size)] if len(own) else []
        )
        read = self.source.read(draws, crop_key=None)
        for step, (inputs, draw) in enumerate(zip(read, draws, strict=True)):
            yield self.batch(step, inputs if self.features else self.normalise(inputs), draw)


def channel_statistics(
    split: Split, channels: int, size: int, workers: int = 0
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of every channel, in 0 … 1, for the normalisation.

    Taken from all images of an array, and from at most 2,000 decoded pictures, evenly spaced.
    Feature vectors have none. A channel of one single level gets a standard deviation of 1.
    """
    if isinstance(split, FeatureVectors):
        return [], []
    indices = torch.arange(len(split))
    if not isinstance(split, ArrayImages) and len(split) > STATISTICS_FROM:
        indices = torch.arange(STATISTICS_FROM) * len(split) // STATISTICS_FROM
    draws = [Draw(part, part) for part in indices.split(256)]
    source = open_source(split, size, channels, torch.device("cpu"), workers)
    levels = torch.arange(256, dtype=torch.float64) / 255
    histogram = torch.zeros(channels, 256, dtype=torch.float64)
    for images in source.read(draws, crop_key=None):
        for channel, pixels in enumerate(images.unbind(1)):
            histogram[channel] += torch.bincount(pixels.flatten(), minlength=256)
    if isinstance(source, DecodedImages):
        source.close()
    share = histogram / histogram.sum(dim=1, keepdim=True)
    mean = share @ levels
    std = (share * (levels - mean[:, None]) ** 2).sum(dim=1).sqrt()
    return mean.tolist(), torch.where(std > 0, std, 1.0).tolist()

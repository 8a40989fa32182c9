"""Batches for training and evaluation: read, augmented, normalised, on the device."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from wcdas import rng
from wcdas.data.augment import Augmentation
from wcdas.data.dataset import ArrayImages, FeatureVectors, Split
from wcdas.data.images import CENTRE, Crop
from wcdas.data.inputs import Draw, Resident, open_inputs
from wcdas.data.samplers import whole_batches
from wcdas.errors import InputError

AUGMENT, CROP = 0, 1  # what the key of an epoch is used for
STATISTICS_FROM = 2000  # decoded images that mean and standard deviation are taken from
AHEAD_BYTES = 2**25  # of resident images that are augmented together


class Batch(NamedTuple):
    """One step's images, all on the device; `positions` are those in the epoch's sequence."""

    inputs: Tensor
    labels: Tensor
    indices: Tensor
    positions: Tensor


class Loader:
    """The base of both loaders: inputs, their labels, and the normalisation.

    Inputs are float32, (pixel / 255 − mean) / std; feature vectors are handed out as they are.
    Of an image that is evaluated `centre` of its shorter side is seen, from 112 pixels on.
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
        centre: float = CENTRE,
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
        self.shape = (channels,) if self.features else (channels, size, size)  # of an input
        self.source = open_inputs(split, size, channels, self.device, workers, centre)
        self.labels = split.labels.to(self.device)
        self.mean = torch.tensor(mean, device=self.device).view(-1, 1, 1)
        self.std = torch.tensor(std, device=self.device).view(-1, 1, 1)
        self.batch_size, self.rank, self.world = batch_size, rank, world
        self.memory_format = memory_format

    def close(self) -> None:
        """End the worker processes, where there are any."""
        self.source.close()

    def normalise(self, images: Tensor) -> Tensor:
        inputs = images.to(torch.float32, memory_format=self.memory_format)
        return inputs.div_(255).sub_(self.mean).div_(self.std)


class TrainLoader(Loader):
    """The batches of an epoch, in the order of a sampler's sequence.

    `batch_size` is that of all processes together; each gets an equal slice of every batch.
    The other arguments are those of `Loader`.

    Where the data lives on the device, so does the plan of an epoch, and with it a counter: `batch`
    then is the same work at every step, which a CUDA graph can hold. Images are augmented `ahead`
    steps at a time, by `prepare`.
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
        self.steps = len(whole_batches(split.labels, batch_size, world))
        self.augmentation = augmentation
        self.augments = bool(augmentation.steps) or augmentation.crop_scale is not None
        self.plan: Draw | None = None  # (steps, batch) each
        own = batch_size // world if self.steps > 1 else len(split.labels) // world
        self.ahead = min(self.steps, max(1, AHEAD_BYTES // (max(1, own) * math.prod(self.shape))))
        self.images: Tensor | None = None  # (ahead, batch, channels, height, width) uint8
        self.keys = torch.zeros(2, dtype=torch.int64, device=self.device)
        self.counter = torch.zeros(1, dtype=torch.int64, device=self.device)

    @property
    def is_resident(self) -> bool:
        return isinstance(self.source, Resident)

    def epoch(self, sequence: Tensor, key: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from step `start` on; `key` decides the augmentation."""
        draws = self._draws(sequence)[start:]
        if isinstance(self.source, Resident):
            self.begin(sequence, key, start)
            for step in range(start, start + len(draws)):
                if step > start and step % self.ahead == 0:
                    self.prepare(step)
                yield self.batch()
            return
        crop, augment_key = self._crop(rng.stream(key, CROP)), rng.stream(key, AUGMENT)
        for images, draw in self.source.read(draws, crop):
            inputs = self.normalise(self.augmentation(images, augment_key, draw.positions))
            yield Batch(inputs, self.labels[draw.indices], *draw)

    def begin(self, sequence: Tensor, key: int, start: int = 0) -> None:
        """Lay the plan of an epoch down on the device, over that of the epoch before."""
        draws = self._draws(sequence)
        plan = Draw(*(torch.stack(column) for column in zip(*draws, strict=True)))
        if self.plan is None or self.plan.indices.shape != plan.indices.shape:
            self.plan = plan.to(self.device)
        for kept, new in zip(self.plan, plan, strict=True):
            kept.copy_(new)
        self.keys.copy_(torch.tensor([rng.stream(key, purpose) for purpose in (AUGMENT, CROP)]))
        self.counter.fill_(start)
        self.prepare(start)

    def prepare(self, step: int) -> None:
        """Augment the images of step `step` and of those that go with it."""
        if self.features:
            return
        assert self.plan is not None
        assert isinstance(self.source, Resident)
        first = step // self.ahead * self.ahead
        draw = Draw(*(column[first : first + self.ahead].flatten() for column in self.plan))
        images = self.source.take(*draw, self._crop(self.keys[CROP]))
        images = self.augmentation(images, self.keys[AUGMENT], draw.positions)
        images = images.view(-1, self.plan.indices.shape[1], *images.shape[1:])
        if self.images is None or self.images.shape[1:] != images.shape[1:]:
            self.images = images.new_empty(self.ahead, *images.shape[1:])
        self.images[: len(images)] = images

    def batch(self) -> Batch:
        """Return the next batch of the plan."""
        assert self.plan is not None
        assert isinstance(self.source, Resident)
        draw = Draw(*(column.index_select(0, self.counter).squeeze(0) for column in self.plan))
        if self.features:
            inputs = self._view(self.source.take(*draw, None), draw.positions)
        else:
            assert self.images is not None
            inputs = self.images.index_select(0, self.counter % self.ahead).squeeze(0)
            inputs = self.normalise(inputs)
        self.counter += 1
        return Batch(inputs, self.labels[draw.indices], *draw)

    def _view(self, features: Tensor, positions: Tensor) -> Tensor:
        """Draw one of the views of every image, where there are several; the first is plain."""
        if features.dim() == 2 or not self.augments:
            return first_view(features)
        view = rng.bits(self.keys[AUGMENT], positions, 1) % features.shape[1]
        return features.take_along_dim(view[:, :, None], dim=1).squeeze(1)

    def _crop(self, key: int | Tensor) -> Crop | None:
        scale = self.augmentation.crop_scale
        return None if scale is None or self.features else Crop(key, scale)

    def _draws(self, sequence: Tensor) -> list[Draw]:
        sequence = sequence.cpu()
        batches = whole_batches(torch.arange(len(sequence)), self.batch_size, self.world)
        own = [positions.chunk(self.world)[self.rank] for positions in batches]
        return [Draw(sequence[positions], positions) for positions in own]


class EvalLoader(Loader):
    """Every image once, in file order; of several processes rank r sees r, r + world, …

    `batch_size` is that of this process.
    """

    @property
    def batches_of_all(self) -> int:
        """How many every process has at least; one of them may have one more."""
        return math.ceil(len(self.labels) // self.world / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        own = torch.arange(self.rank, len(self.labels), self.world)
        draws = [Draw(part, part) for part in own.split(self.batch_size)] if len(own) else []
        for inputs, draw in self.source.read(draws):
            inputs = first_view(inputs) if self.features else self.normalise(inputs)
            yield Batch(inputs, self.labels[draw.indices], *draw)


class ViewLoader(Loader):
    """Every image once, in file order, as one view has it; its random numbers are those of a
    position that is its own, whatever else is in the split."""

    def view(self, positions: Tensor, augmentation: Augmentation, key: int) -> Iterator[Tensor]:
        """Return the inputs, a batch at a time; `positions` (N,) and the key decide the view."""
        everything = torch.arange(len(self.labels))
        draws = [Draw(part, positions[part]) for part in everything.split(self.batch_size)]
        scale, augment_key = augmentation.crop_scale, rng.stream(key, AUGMENT)
        crop = None if scale is None else Crop(rng.stream(key, CROP), scale)
        for images, draw in self.source.read(draws, crop):
            yield self.normalise(augmentation(images, augment_key, draw.positions))


def first_view(features: Tensor) -> Tensor:
    """Return (N, d) of features (N, d) or (N, views, d)."""
    return features[:, 0] if features.dim() == 3 else features


Statistics = tuple[list[float], list[float]]
_known: WeakKeyDictionary[Split, dict[tuple[int, int], Statistics]] = WeakKeyDictionary()


def channel_statistics(split: Split, channels: int, size: int, workers: int = 0) -> Statistics:
    """Return mean and standard deviation of every channel, in 0 … 1, for the normalisation.

    Taken from all images of an array, and from at most 2,000 decoded images, evenly spaced, once
    for all runs on them. Feature vectors have none. A channel of one single level gets a standard
    deviation of 1.
    """
    if isinstance(split, FeatureVectors):
        return [], []
    of_split = _known.setdefault(split, {})
    if (channels, size) not in of_split:
        of_split[channels, size] = _statistics(split, channels, size, workers)
    return of_split[channels, size]


def _statistics(split: Split, channels: int, size: int, workers: int) -> Statistics:
    indices = torch.arange(len(split))
    if not isinstance(split, ArrayImages) and len(split) > STATISTICS_FROM:
        indices = torch.arange(STATISTICS_FROM) * len(split) // STATISTICS_FROM
    draws = [Draw(part, part) for part in indices.split(256)]
    source = open_inputs(split, size, channels, torch.device("cpu"), workers)
    levels = torch.arange(256, dtype=torch.float64) / 255
    histogram = torch.zeros(channels, 256, dtype=torch.float64)
    for images, _ in source.read(draws):
        for channel, pixels in enumerate(images.unbind(1)):
            histogram[channel] += torch.bincount(pixels.flatten(), minlength=256)
    source.close()
    share = histogram / histogram.sum(dim=1, keepdim=True)
    mean = share @ levels
    std = (share * (levels - mean[:, None]) ** 2).sum(dim=1).sqrt()
    return mean.tolist(), torch.where(std > 0, std, 1.0).tolist()

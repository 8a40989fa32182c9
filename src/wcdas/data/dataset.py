"""A dataset is two splits, the names of the classes, and facts worth recording.

A split holds its images as one tensor (`ArrayImages`), as images decoded one at a time when asked
for (`StoredImages`: files or encoded bytes), or no images at all but features (`FeatureVectors`).
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from PIL import Image
from torch import Tensor

from wcdas.data.images import Encoded, Header, check_image, open_image


class Split:
    """Images and their labels, int64 (N,) on the CPU; `noun` is what a user calls them."""

    noun: ClassVar[str] = "images"
    held: ClassVar[str]  # the name of the field with a value for each image
    labels: Tensor
    prefix: str

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """What a report calls the image."""
        return f"{self.prefix}/{index}"

    def contents(self) -> Iterator[Encoded]:
        """What the fingerprint is taken over, beside the labels."""
        values: Tensor = getattr(self, self.held)
        yield repr(tuple(values.shape)).encode()
        yield values.contiguous().numpy().data

    def content(self, index: int) -> Encoded:
        """The bytes of one image."""
        values: Tensor = getattr(self, self.held)
        return values[index].numpy().tobytes()

    def subset(self, indices: Tensor) -> Self:
        """Some of the images, in the order given."""
        values = getattr(self, self.held)
        if not isinstance(values, Tensor):
            return self._with([values[i] for i in indices.tolist()], self.labels[indices])
        return self._with(values[indices], self.labels[indices])

    def joined(self, other: Self) -> Self:
        """These images, then those of another split of the same kind."""
        first, second = getattr(self, self.held), getattr(other, self.held)
        both = torch.cat([first, second]) if isinstance(first, Tensor) else [*first, *second]
        return self._with(both, torch.cat([self.labels, other.labels]))

    def _with(self, values: Any, labels: Tensor) -> Self:
        changed: Self = replace(cast(Any, self), **{self.held: values, "labels": labels})
        return changed


@dataclass(frozen=True, eq=False)
class ArrayImages(Split):
    """Images of one size in one tensor: uint8 (N, C, H, W) on the CPU."""

    held: ClassVar[str] = "pixels"
    pixels: Tensor
    labels: Tensor
    prefix: str


@dataclass(frozen=True, eq=False)
class SquareImages(ArrayImages):
    """Images that are cut and brought to size for evaluation already."""


@dataclass(frozen=True, eq=False)
class CanvasImages(ArrayImages):
    """Images squeezed onto one size; `shapes` (N, 2) are the heights and widths they had."""

    shapes: Tensor


class StoredImages(Split):
    """Images that are decoded one at a time, each in its own size."""

    channels: int

    def load(self, index: int, at_least: int | None = None) -> Image.Image:
        """The image upright, in mode L (one channel) or RGB (three).

        Where its sides need to be `at_least` so long only, it may come smaller, which is quicker.
        """
        raise NotImplementedError

    def check(self, index: int) -> Header:
        """Decode an image once and return its header; an InputError says why it cannot be."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class FileImages(StoredImages):
    """Image files, named by their paths relative to a root."""

    held: ClassVar[str] = "paths"
    root: Path
    paths: list[str]
    labels: Tensor
    channels: int

    def name(self, index: int) -> str:
        return self.paths[index]

    def load(self, index: int, at_least: int | None = None) -> Image.Image:
        return open_image(self.root / self.paths[index], self.channels, at_least=at_least)

    def check(self, index: int) -> Header:
        return check_image(self.root / self.paths[index], self.paths[index])

    def contents(self) -> Iterator[Encoded]:
        for path in self.paths:
            yield os.fsencode(f"{path}\0{(self.root / path).stat().st_size}")

    def content(self, index: int) -> Encoded:
        return (self.root / self.paths[index]).read_bytes()


@dataclass(frozen=True, eq=False)
class BytesImages(StoredImages):
    """Encoded images (JPEG, PNG, …) as Parquet and Arrow files store them."""

    held: ClassVar[str] = "encoded"
    encoded: list[Encoded]
    labels: Tensor
    channels: int
    prefix: str

    def load(self, index: int, at_least: int | None = None) -> Image.Image:
        return open_image(self.encoded[index], self.channels, self.name(index), at_least)

    def check(self, index: int) -> Header:
        return check_image(self.encoded[index], self.name(index))

    def contents(self) -> Iterator[Encoded]:
        yield from self.encoded

    def content(self, index: int) -> Encoded:
        return self.encoded[index]


@dataclass(frozen=True, eq=False)
class FeatureVectors(Split):
    """Precomputed features: float32 (N, d) on the CPU, or (N, views, d).

    Of several views a draw in training takes one, and the first, that of the image as it is, counts
    everywhere else.
    """

    noun: ClassVar[str] = "samples"
    held: ClassVar[str] = "vectors"
    vectors: Tensor
    labels: Tensor
    prefix: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split over the same classes.

    `input_size` is the side length to train at from scratch (0 for features), `image_side` the
    images' own shorter side, as most have it, `channels` 1 or 3 (features: the
    length of a vector), `augment_flip` whether a mirrored image is still of its class,
    None where `decide_mirroring` has not looked yet.
    `description` holds facts for `run.toml`; `warnings` are lines to print once; `bad` says of
    every image that was left out why.
    """

    name: str
    class_names: list[str]
    train: Split
    test: Split
    input_size: int
    channels: int
    augment_flip: bool | None
    fingerprint: str
    image_side: int = 0
    description: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def class_counts(self) -> Tensor:
        """Training images of each class, int64 (C,)."""
        return torch.bincount(self.train.labels, minlength=self.num_classes)

    @property
    def test_counts(self) -> Tensor:
        """Test images of each class, int64 (C,)."""
        return torch.bincount(self.test.labels, minlength=self.num_classes)


def fingerprint(class_names: Sequence[str], *splits: Split) -> str:
    """SHA-256 over the class names and, for every split, its labels and contents."""
    digest = hashlib.sha256()

    def add(part: Encoded) -> None:
        digest.update(memoryview(part).nbytes.to_bytes(8, "little"))
        digest.update(part)

    for name in class_names:
        add(os.fsencode(name))
    for split in splits:
        add(type(split).__name__.encode())
        add(split.labels.contiguous().numpy().data)
        for part in split.contents():
            add(part)
    return digest.hexdigest()

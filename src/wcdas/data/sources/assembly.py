"""From images and labels to a dataset: what all sources have in common, their options and checks.

Every image is decoded once before training, so that a bad one is named at the start.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from wcdas.data.classes import check_class_names, check_gaps, read_class_names, some
from wcdas.data.dataset import (
    ArrayImages,
    BytesImages,
    Dataset,
    FileImages,
    Split,
    StoredImages,
    fingerprint,
)
from wcdas.data.images import Header, to_pixels
from wcdas.data.split import stratified_split
from wcdas.errors import InputError

T = TypeVar("T")
R = TypeVar("R")
Images = FileImages | BytesImages

BLOCK = 64
TEST_WORDS = ("test", "val", "valid", "validation")  # what a test set is called
SHOWN = 5
EAGER_SIDE, EAGER_BYTES = 64, 2**30


@dataclass(frozen=True)
class Options:
    """What every source is opened with; `open_dataset` says what each means."""

    imbalance: float | None = None
    profile: str = "exp"
    root: Path | None = None
    classes: Path | None = None
    labels: Path | None = None
    skip_bad: bool = False
    seed: int = 0

    @property
    def data_root(self) -> Path:
        """Where named datasets lie."""
        return self.root or Path(os.environ.get("WCDAS_DATA") or "data").expanduser()

    @property
    def class_names(self) -> list[str] | None:
        """The names in the file `classes`, where one is given."""
        return None if self.classes is None else read_class_names(self.classes)


def assemble(
    name: str,
    class_names: Sequence[str],
    train: Split,
    test: Split,
    *,
    input_size: int,
    image_side: int = 0,
    channels: int,
    augment_flip: bool | None = True,
    description: dict[str, Any],
    warnings: Sequence[str] = (),
    bad: Sequence[str] = (),
) -> Dataset:
    """Build the dataset; refuse what cannot be trained on, warn of what may disappoint."""
    if len(class_names) < 2:
        only = f"one class only ({class_names[0]})" if class_names else "no classes"
        raise InputError(f"{name} has {only}; expected at least two")
    check_class_names(class_names)
    check_gaps(train.labels, class_names, name)
    if not len(test):
        raise InputError(f"{name} has no test samples; expected at least one of some class")
    return Dataset(
        name=name,
        class_names=list(class_names),
        train=train,
        test=test,
        input_size=input_size,
        image_side=image_side or input_size,
        channels=channels,
        augment_flip=augment_flip,
        fingerprint=fingerprint(class_names, train, test),
        description=description,
        warnings=[*warnings, *_tail_warnings(class_names, train.labels, test.labels)],
        bad=list(bad),
    )


def _tail_warnings(class_names: Sequence[str], train: Tensor, test: Tensor) -> list[str]:
    counts, tested = (labels.bincount(minlength=len(class_names)) for labels in (train, test))
    lines = []
    trained = "they are trained, and without a test image their accuracy is “–”"
    for mask, what, consequence in (
        (counts == 1, "classes with one image only", trained),
        (counts > 1, "classes without test images", "their accuracy is “–”"),
    ):
        untested = (mask & (tested == 0)).nonzero().flatten().tolist()
        if untested:
            named = some(class_names[c] for c in untested)
            lines.append(f"{what} ({len(untested)}): {named}; {consequence}")
    return lines


def dataset_of_images(
    name: str,
    class_names: Sequence[str],
    train: Images,
    test: Images | None,
    options: Options,
    description: dict[str, Any],
    warnings: Sequence[str] = (),
) -> Dataset:
    """Build a dataset of stored images; without a test set 20 % of each class become it.

    Of image files, a class is dropped that has none left because all of its images are bad.
    Encoded images that are small, square and of one size are decoded at once into a tensor.
    """
    files = isinstance(train, FileImages)
    splits = [train] if test is None else [train, test]
    if test is None and not files:  # before they are checked, since a row is named by its split
        splits = _with_test(train, options.seed)
    splits, headers, bad = verified(splits, options.skip_bad)
    if not headers:
        layout = "; expected a folder per class" if files else ""
        raise InputError(f"{name} holds no image that can be read{layout}")
    if bad and files:
        kept = torch.cat([split.labels for split in splits]).unique()
        number = torch.full((len(class_names),), -1)
        number[kept] = torch.arange(len(kept))
        if (number < 0).any():
            splits = [replace(split, labels=number[split.labels]) for split in splits]
            lost = some(class_names[c] for c in (number < 0).nonzero().flatten().tolist())
            warnings = [*warnings, f"classes without a readable image are dropped: {lost}"]
            class_names = [class_names[c] for c in kept.tolist()]
    if test is None:
        splits = _with_test(splits[0], options.seed) if files else splits
        description = {**description, "split_seed": options.seed}
    if bad:
        description = {**description, "skipped": len(bad)}
    channels = 1 if all(header.grey for header in headers) else 3
    side = 0 if files else _eager_side(headers)
    usual = int(median(min(header.width, header.height) for header in headers))
    splits = [replace(split, channels=channels) for split in splits]
    finished: list[Split] = [decoded(split) if side else split for split in splits]
    return assemble(
        name,
        class_names,
        *finished,
        input_size=side or _suggested_size(usual),
        image_side=usual,
        channels=channels,
        augment_flip=None,
        description=description,
        warnings=[*warnings, *skipped_warning(bad)],
        bad=bad,
    )


def _with_test(images: Images, seed: int) -> list[Images]:
    train, test = (images.subset(part) for part in stratified_split(images.labels, seed))
    return [train, replace(test, prefix="test") if isinstance(test, BytesImages) else test]


def verified(
    splits: Sequence[Images], skip_bad: bool
) -> tuple[list[Images], list[Header], list[str]]:
    """Return the good images of splits and their headers, and what is wrong with the bad ones.

    Bad ones are refused together in one line, or left out.
    """

    def attempt(item: tuple[Images, int]) -> Header | InputError:
        try:
            return item[0].check(item[1])
        except InputError as error:
            return error

    found = in_threads(attempt, [(split, i) for split in splits for i in range(len(split))])
    bad = [str(result) for result in found if isinstance(result, InputError)]
    if bad and not skip_bad:
        raise InputError(
            f"{len(bad)} of {len(found)} images cannot be used: {_first(bad)}. "
            "Remove them, or leave them out with --skip-bad"
        )
    good = torch.tensor([isinstance(result, Header) for result in found])
    masks = good.split([len(split) for split in splits])
    return (
        [s.subset(mask.nonzero().flatten()) for s, mask in zip(splits, masks, strict=True)],
        [result for result in found if isinstance(result, Header)],
        bad,
    )


def skipped_warning(bad: Sequence[str]) -> list[str]:
    """Return one line that counts and names the images left out, if there are any."""
    return [f"bad images left out ({len(bad)}): {_first(bad)}"] if bad else []


def _first(bad: Sequence[str]) -> str:
    more = len(bad) - SHOWN
    return "; ".join([*bad[:SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _suggested_size(short: int) -> int:
    """Return 32, 64 or 224 pixels to train at, by the usual shorter side (≤ 48, ≤ 112, more)."""
    return 32 if short <= 48 else 64 if short <= 112 else 224


def _eager_side(headers: Sequence[Header]) -> int:
    """Return the common side of small square images that fit in memory decoded, else 0."""
    width, height, _ = headers[0]
    small = width == height <= EAGER_SIDE and {h[:2] for h in headers} == {(width, height)}
    return width if small and 3 * width * height * len(headers) <= EAGER_BYTES else 0


def decoded(images: StoredImages) -> ArrayImages:
    """Return images of one size in one tensor."""
    found = in_threads(lambda i: to_pixels(images.load(i)), range(len(images)))
    empty = torch.empty(0, images.channels, 0, 0, dtype=torch.uint8)
    return ArrayImages(torch.stack(found) if found else empty, images.labels, images.prefix)


def digests(split: Split) -> list[bytes]:
    """Return the SHA-256 of the bytes of every image."""
    return in_threads(lambda i: hashlib.sha256(split.content(i)).digest(), range(len(split)))


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to every item, in order.

    PIL decodes outside the interpreter's lock, but at small images threads hold each other up more
    than that saves: the first blocks tell.
    """
    blocks = [items[start : start + BLOCK] for start in range(0, len(items), BLOCK)]
    threads = os.cpu_count() or 1

    def one(block: Sequence[T]) -> list[R]:
        return [function(item) for item in block]

    with ThreadPoolExecutor(threads) as pool:
        done, began = one(blocks[0]) if blocks else [], time.perf_counter()
        first, second, rest = blocks[1:2], blocks[2 : 2 + threads], blocks[2 + threads :]
        done += chain.from_iterable(map(one, first))
        alone, began = time.perf_counter() - began, time.perf_counter()
        done += chain.from_iterable(pool.map(one, second))
        together = (time.perf_counter() - began) / threads
        done += chain.from_iterable((map if alone < together else pool.map)(one, rest))
    return done

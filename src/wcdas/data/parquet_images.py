"""Images from Parquet or Arrow, split into training and test images where the files do not do it.

Small square images of one size are decoded at once into a tensor, others stay encoded in memory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wcdas.data.assemble import assemble, stratified_split
from wcdas.data.dataset import ArrayImages, BytesImages, Dataset, Split
from wcdas.data.decode import Encoded, Header, check_image, open_image
from wcdas.data.parquet import EncodedImages, parquet_class_names, read_images, split_files
from wcdas.data.verify import common_channels, in_threads, skipped_warning, suggested_size, verify
from wcdas.errors import InputError

EAGER_SIDE, EAGER_BYTES = 64, 2**30


def open_parquet(
    path: Path, *, classes: Path | None = None, skip_bad: bool = False, seed: int = 0
) -> Dataset:
    """Images from a Parquet file, or from a folder of them."""
    train_files, test_files = split_files(path)
    train, class_names = read_images(train_files, parquet_class_names(train_files[0], classes))
    test = read_images(test_files, class_names)[0] if test_files else None
    description = {
        "source": "parquet",
        "train_files": [file.name for file in train_files],
        "test_files": [file.name for file in test_files],
    }
    return dataset_of_bytes(
        str(path), class_names, train, test, skip_bad=skip_bad, seed=seed, description=description
    )


def dataset_of_bytes(
    name: str,
    class_names: list[str],
    train: EncodedImages,
    test: EncodedImages | None,
    *,
    skip_bad: bool,
    seed: int,
    description: dict[str, Any],
) -> Dataset:
    """Encoded images with their labels; without a test set 20 % become one."""
    if test is None:
        description["split_seed"] = seed
        keep, held_out = stratified_split(train.labels, seed)
        train, test = select(train, keep), select(train, held_out)

    pictures = [(image, f"train/{i}") for i, image in enumerate(train.encoded)]
    pictures += [(image, f"test/{i}") for i, image in enumerate(test.encoded)]
    found = verify(lambda picture: check_image(*picture), pictures, skip_bad)
    if not found.good:
        raise InputError(f"{name} holds no image that can be read")
    if found.bad:
        description["skipped"] = len(found.bad)
    good, border = torch.tensor(found.good), len(train.encoded)
    train, test = select(train, good[good < border]), select(test, good[good >= border] - border)

    channels, side = common_channels(found.headers), eager_side(found.headers)
    return assemble(
        name,
        class_names,
        as_split(train, "train", channels, eager=bool(side)),
        as_split(test, "test", channels, eager=bool(side)),
        input_size=side or suggested_size(found.headers),
        channels=channels,
        description=description,
        warnings=skipped_warning(found.bad),
        bad=found.bad,
    )


def eager_side(headers: Sequence[Header]) -> int:
    """The common side of small square images that fit in memory decoded, else 0."""
    sizes = {(header.width, header.height) for header in headers}
    width, height = sizes.pop()
    small = not sizes and width == height <= EAGER_SIDE
    return width if small and 3 * width * height * len(headers) <= EAGER_BYTES else 0


def as_split(images: EncodedImages, prefix: str, channels: int, *, eager: bool) -> Split:
    if not eager:
        return BytesImages(images.encoded, images.labels, channels, prefix)
    return ArrayImages(decode_all(images.encoded, channels, prefix), images.labels, prefix)


def decode_all(encoded: Sequence[Encoded], channels: int, prefix: str) -> Tensor:
    """Images of one size as uint8 (N, C, H, W)."""

    def pixels(item: tuple[int, Encoded]) -> Tensor:
        i, image = item
        array = np.array(open_image(image, channels, name=f"{prefix}/{i}"))
        return torch.from_numpy(array.reshape(*array.shape[:2], channels)).permute(2, 0, 1)

    decoded = in_threads(pixels, list(enumerate(encoded)))
    return torch.stack(decoded) if decoded else torch.empty(0, channels, 0, 0, dtype=torch.uint8)


def select(images: EncodedImages, indices: Tensor) -> EncodedImages:
    return EncodedImages([images.encoded[i] for i in indices.tolist()], images.labels[indices])

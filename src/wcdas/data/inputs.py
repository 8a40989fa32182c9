"""Where a loader's inputs come from: tensors on the device, or images decoded by workers.

Inputs are uint8 images (B, C, size, size) on the device, or feature vectors.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import functional as tv

from wcdas.data.dataset import (
    ArrayImages,
    CanvasImages,
    FeatureVectors,
    Split,
    SquareImages,
    StoredImages,
)
from wcdas.data.images import (
    CENTRE,
    CENTRE_CROP_FROM,
    Crop,
    evaluation_boxes,
    evaluation_square,
    needed_side,
    resized_crop_boxes,
    to_pixels,
    training_square,
)
from wcdas.data.operations import resized_crop
from wcdas.errors import InputError
from wcdas.processes import end_with_parent, start_method, started


class Draw(NamedTuple):
    """One batch to read: which images, at which positions of the epoch."""

    indices: Tensor
    positions: Tensor

    def to(self, device: torch.device) -> "Draw":
        return Draw(self.indices.to(device), self.positions.to(device))


def open_inputs(
    split: Split,
    size: int,
    channels: int,
    device: torch.device,
    workers: int,
    centre: float = CENTRE,
) -> "Resident | DecodedImages":
    """Open what a loader reads; `centre` is what of the shorter side is evaluated."""
    if isinstance(split, FeatureVectors):
        return Resident(split.vectors.float(), device)
    if isinstance(split, CanvasImages):
        return Canvases(split.pixels, device, split.shapes, size, centre)
    if isinstance(split, ArrayImages):
        if isinstance(split, SquareImages) or size < CENTRE_CROP_FROM:
            return Resident(fit(split.pixels, size, channels), device)
        return Arrays(with_channels(split.pixels, channels), device, size, centre)
    if isinstance(split, StoredImages):
        return DecodedImages(split, size, channels, device, workers, centre)
    raise InputError(f"a {type(split).__name__} cannot be loaded; expected images or features")


class Resident:
    """Images of one size, or feature vectors, held on the device."""

    def __init__(self, values: Tensor, device: torch.device) -> None:
        self.values = values.to(device)

    def take(self, indices: Tensor, positions: Tensor, crop: Crop | None) -> Tensor:
        """Return the inputs at indices on the device, each cut by RandomResizedCrop if asked."""
        return self.values[indices]

    def read(self, draws: list[Draw], crop: Crop | None = None) -> Iterator[tuple[Tensor, Draw]]:
        """Return the inputs of one draw after another, and the draw, on the device."""
        for draw in draws:
            there = draw.to(self.values.device)
            yield self.take(*there, crop), there

    def close(self) -> None:
        """There is nothing to end."""


class Canvases(Resident):
    """Images squeezed onto one size; they are cut in the shapes that they had."""

    def __init__(
        self, values: Tensor, device: torch.device, shapes: Tensor, size: int, centre: float
    ) -> None:
        super().__init__(values, device)
        self.shapes, self.size, self.centre = shapes.to(device), size, centre

    def take(self, indices: Tensor, positions: Tensor, crop: Crop | None) -> Tensor:
        images, shapes = self.values[indices], self.shapes[indices]
        if crop is None:
            boxes = evaluation_boxes(shapes, self.size, self.centre)
        else:
            boxes = resized_crop_boxes(crop, positions, *shapes.unbind(1))
        squeeze = torch.tensor(images.shape[-2:], device=images.device) / shapes
        return resized_crop(images, boxes * squeeze.repeat(1, 2), self.size)


class Arrays(Resident):
    """Images of one size that are cut as image files are: by a random crop, or in the centre."""

    def __init__(self, values: Tensor, device: torch.device, size: int, centre: float) -> None:
        super().__init__(values, device)
        self.size, self.centre = size, centre

    @cached_property
    def squares(self) -> Tensor:
        """All images as they are evaluated."""
        images = map(tv.to_pil_image, self.values.cpu())
        cut = [to_pixels(evaluation_square(image, self.size, self.centre)) for image in images]
        return torch.stack(cut).to(self.values.device)

    def take(self, indices: Tensor, positions: Tensor, crop: Crop | None) -> Tensor:
        if crop is None:
            return self.squares[indices]
        boxes = resized_crop_boxes(crop, positions, *self.values.shape[-2:])
        return resized_crop(self.values[indices], boxes, self.size)


Item = tuple[int, int, Crop | None]  # index, position


class DecodedImages:
    """Images decoded and brought to size by worker processes, or here with `workers=0`.

    The workers stay from one epoch to the next.
    """

    def __init__(
        self,
        split: StoredImages,
        size: int,
        channels: int,
        device: torch.device,
        workers: int,
        centre: float,
    ) -> None:
        if workers < 0:
            raise InputError(f"workers is {workers}; expected 0 (none) or more")
        self.device = device
        self.batches: list[list[Item]] = []  # what is to be read in this epoch
        self.loader: DataLoader[Tensor | InputError] = DataLoader(
            _Squares(split, size, channels, centre),
            batch_sampler=self.batches,
            num_workers=workers,
            multiprocessing_context=start_method(workers),
            collate_fn=_stacked,
            worker_init_fn=end_with_parent,
            pin_memory=device.type == "cuda",
            persistent_workers=workers > 0,
            generator=torch.Generator(),  # else every epoch would advance the global one
        )

    def read(self, draws: list[Draw], crop: Crop | None = None) -> Iterator[tuple[Tensor, Draw]]:
        """Return the inputs of one draw after another, and the draw, on the device.

        Each image is cut by RandomResizedCrop if asked.
        """
        self.batches[:] = [
            [(i, p, crop) for i, p in zip(*(c.tolist() for c in draw), strict=True)]
            for draw in draws
        ]
        try:
            for images, draw in zip(started(self.loader), draws, strict=True):
                if isinstance(images, InputError):
                    raise images
                yield images.to(self.device, non_blocking=True), draw.to(self.device)
        except (Exception, KeyboardInterrupt):
            self.close()
            raise

    def close(self) -> None:
        """End the workers; the next epoch would start new ones."""
        if self.loader._iterator is not None:
            self.loader._iterator._shutdown_workers()  # type: ignore[attr-defined]
            self.loader._iterator = None


class _Squares(Dataset[Tensor | InputError]):
    """Decoded images by item; a bad file is handed on as the error it causes."""

    def __init__(self, split: StoredImages, size: int, channels: int, centre: float) -> None:
        self.split, self.size, self.channels, self.centre = split, size, channels, centre

    def __getitem__(self, item: Item) -> Tensor | InputError:
        index, position, crop = item
        side = needed_side(self.size, 1.0 if crop is None else crop.scale)
        try:
            image = self.split.load(index, at_least=side)
        except InputError as error:
            return error
        if crop is None:
            square = evaluation_square(image, self.size, self.centre)
        else:
            square = training_square(image, self.size, crop, position)
        return to_pixels(square.convert("L" if self.channels == 1 else "RGB"))


def _stacked(items: list[Tensor | InputError]) -> Tensor | InputError:
    errors = [item for item in items if isinstance(item, InputError)]
    return errors[0] if errors else torch.stack([i for i in items if isinstance(i, Tensor)])


def with_channels(pixels: Tensor, channels: int) -> Tensor:
    """Return images in one tensor, grey ones in colour or the other way round where asked."""
    if pixels.shape[1] == channels:
        return pixels
    return pixels.expand(-1, 3, -1, -1) if channels == 3 else tv.rgb_to_grayscale(pixels)


def fit(pixels: Tensor, size: int, channels: int) -> Tensor:
    """Return images in one tensor, brought to the channels and the size that a model takes."""
    pixels = with_channels(pixels, channels)
    if tuple(pixels.shape[-2:]) == (size, size):
        return pixels.contiguous()
    return torch.cat([tv.resize(part, [size, size], antialias=True) for part in pixels.split(1024)])

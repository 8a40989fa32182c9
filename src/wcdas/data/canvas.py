"""Stored images, decoded once and held on the device, where memory allows.

A training image is squeezed onto a canvas, one size for all, and crops are drawn in the shape that
it had: where a crop lies and what it shows is the same as of the file, at a resolution of the
canvas, whose shorter side is at most 8/7 of the input size.
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as Items

from wcdas.data.dataset import CanvasImages, Dataset, SquareImages, StoredImages
from wcdas.data.images import evaluation_square, needed_side, to_pixels
from wcdas.errors import InputError
from wcdas.processes import end_with_parent, start_method, started

LOOKED_AT = 200  # images, for their usual shape
WIDEST = 1.5  # the canvas's longer side over its shorter one, at most
SHARPNESS = 8 / 7  # the canvas's shorter side over the input size, at most


def bytes_needed(dataset: Dataset, size: int, evaluated_at: int) -> int:
    """Return what the images of a dataset take at most, decoded for two input sizes."""
    trained = len(dataset.train) * int(SHARPNESS * size) ** 2 * WIDEST
    return int(dataset.channels * (trained + len(dataset.test) * evaluated_at**2))


def canvases(
    split: StoredImages, size: int, channels: int, device: torch.device, workers: int
) -> CanvasImages:
    """Decode training images onto canvases."""
    step = max(1, len(split) // LOOKED_AT)
    looked = [split.load(i).size for i in range(0, len(split), step)]
    width, height = (median(sides) for sides in zip(*looked, strict=True))
    short = min(width, height)
    side = min(short, SHARPNESS * size)
    width, height = (round(side * min(length / short, WIDEST)) for length in (width, height))
    bring = partial(_squeezed, width=width, height=height)
    enough = needed_side(round(side))
    pixels, shapes = _decoded(split, bring, channels, enough, device, workers)
    return CanvasImages(pixels, split.labels, "train", shapes)


def squares(
    split: StoredImages,
    size: int,
    channels: int,
    device: torch.device,
    workers: int,
    centre: float,
) -> SquareImages:
    """Decode images as they are evaluated."""
    bring = partial(evaluation_square, size=size, centre=centre)
    pixels, _ = _decoded(split, bring, channels, needed_side(size), device, workers)
    return SquareImages(pixels, split.labels, "test")


def _squeezed(image: Image.Image, width: int, height: int) -> Image.Image:
    same = image.size == (width, height)
    return image if same else image.resize((width, height), Image.Resampling.BILINEAR)


Bring = Callable[[Image.Image], Image.Image]
Decoded = tuple[Tensor, Tensor]  # pixels, and height and width before


def _decoded(
    split: StoredImages,
    bring: Bring,
    channels: int,
    at_least: int,
    device: torch.device,
    workers: int,
) -> Decoded:
    """Decode all images, brought to one size, into one tensor on the device."""
    loader: DataLoader[Decoded | InputError] = DataLoader(
        _Brought(split, bring, channels, at_least),
        batch_size=64,
        num_workers=workers,
        multiprocessing_context=start_method(workers),
        collate_fn=_stacked,
        worker_init_fn=end_with_parent,
        generator=torch.Generator(),  # else the global one would advance
    )
    pixels, shapes = torch.empty(0), torch.empty(len(split), 2, dtype=torch.int64)
    for first, (part, had) in zip(range(0, len(split), 64), _good(loader), strict=True):
        if not first:
            pixels = part.new_empty(len(split), *part.shape[1:], device=device)
        pixels[first : first + len(part)] = part.to(device)
        shapes[first : first + len(part)] = had
    return pixels, shapes.to(device)


def _good(loader: DataLoader[Decoded | InputError]) -> Iterator[Decoded]:
    for part in started(loader):
        if isinstance(part, InputError):
            raise part
        yield part


class _Brought(Items[Decoded | InputError]):
    """Decoded images by index; a bad file is handed on as the error it causes."""

    def __init__(self, split: StoredImages, bring: Bring, channels: int, at_least: int) -> None:
        self.split, self.bring, self.at_least = split, bring, at_least
        self.mode = "L" if channels == 1 else "RGB"

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Decoded | InputError:
        try:
            image = self.split.load(index, self.at_least)
        except InputError as error:
            return error
        shape = torch.tensor([image.height, image.width])
        return to_pixels(self.bring(image).convert(self.mode)), shape


def _stacked(items: list[Decoded | InputError]) -> Decoded | InputError:
    errors = [item for item in items if isinstance(item, InputError)]
    if errors:
        return errors[0]
    pixels, shapes = zip(*(item for item in items if isinstance(item, tuple)), strict=True)
    return torch.stack(pixels), torch.stack(shapes)

"""From an encoded image to pixels: checked, decoded upright in mode L or RGB, brought to a square.

Transparent pixels are laid on white. 16-bit grey is scaled to 8 bits (65535 → 255), floating-point
grey is read as 0…1 if nothing in it is larger, else as 0…255. Of an animation the first frame
counts. An image that claims more than 100 million pixels is refused from its header.
"""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from wcdas import rng
from wcdas.data.operations import RATIO, TRIES, crop_boxes
from wcdas.errors import InputError
from wcdas.files import MissingFile, check_regular

MAX_PIXELS = 100_000_000
CENTRE_CROP_FROM = 112  # from this side length on, evaluation cuts the centre out
CENTRE = 224 / 256  # share of the shorter side that it has, unless somebody says otherwise
# PostScript is a program, Windows metafiles are drawn by the system: neither is an image to read.
REFUSED_FORMATS = {"EPS", "WMF"}
# An image as a file stores it; a view of an Arrow table, which gives its bytes as well, is one.
Encoded = bytes | memoryview
GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
REASONS: dict[type[Exception], str] = {
    UnidentifiedImageError: "not an image that can be read",
    Image.DecompressionBombError: f"more than {MAX_PIXELS:,} pixels",
    FileNotFoundError: "no such file",
}


class Header(NamedTuple):
    width: int
    height: int
    grey: bool


@cache
def formats() -> tuple[str, ...]:
    """Return the image formats that are read, as PIL calls them."""
    Image.init()
    return tuple(name for name in Image.OPEN if name not in REFUSED_FORMATS)


@cache
def extensions() -> frozenset[str]:
    """Return the file extensions of images, in lower case with their dot."""
    known = Image.registered_extensions()
    return frozenset(extension for extension, name in known.items() if name in formats())


def check_image(source: Path | Encoded, name: str | None = None) -> Header:
    """Decode an image once, JPEG at an eighth of its size, which finds truncated data too.

    Its size and colour are those of the header.
    """
    with _opened(source, name) as image:
        header = Header(image.width, image.height, image.mode in GREY_MODES)
        image.draft(image.mode, (max(image.width // 8, 1), max(image.height // 8, 1)))
        image.load()
        image.close()
    return header


def open_image(
    source: Path | Encoded, channels: int, name: str | None = None, at_least: int | None = None
) -> Image.Image:
    """Return the image upright, in mode L or RGB; one that cannot be read is an `InputError`.

    Where its sides need to be `at_least` so long only, a JPEG is decoded smaller, which is quicker.
    """
    with _opened(source, name) as image:
        if at_least is not None:
            image.draft(image.mode, (at_least, at_least))
        image.load()
        return as_mode(image, channels)


def as_mode(image: Image.Image, channels: int) -> Image.Image:
    """Return an opened image upright, in mode L for one channel and RGB for three."""
    # The pixels are decoded already: only the EXIF block may be damaged.
    with suppress(Exception):
        image = ImageOps.exif_transpose(image)
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray(((values + 128) // 257).astype(np.uint8))
    elif image.mode == "F":
        values = np.nan_to_num(np.asarray(image))
        scale = 255.0 if values.max() <= 1 else 1.0
        image = Image.fromarray((values * scale).clip(0, 255).round().astype(np.uint8))
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if channels == 1 else "RGB")


@contextmanager
def _opened(source: Path | Encoded, name: str | None) -> Iterator[Image.Image]:
    called = name or (str(source) if isinstance(source, Path) else "an image")
    try:
        if isinstance(source, Path):
            check_regular(source)
        file = source if isinstance(source, Path) else io.BytesIO(source)
        image = Image.open(file, formats=formats())
        if image.width * image.height > MAX_PIXELS:
            image.close()
            raise InputError(
                f"{called} is {image.width}×{image.height} pixels; expected at most "
                f"{MAX_PIXELS:,} pixels. Make it smaller"
            )
        yield image
    except MissingFile:
        raise InputError(f"{called} cannot be read: {REASONS[FileNotFoundError]}") from None
    except InputError:
        raise
    # Damaged data makes PIL's readers fail in any way.
    except Exception as error:
        reason = REASONS.get(type(error)) or " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{called} cannot be read: {reason}") from error


def needed_side(size: int, smallest: float = 1.0) -> int:
    """Return how long the sides of a photograph must be decoded to be seen at a size: twice as
    long, and a random crop of the `smallest` share of the area is no smaller than it is seen."""
    return math.ceil(size * max(2.0, 1 / math.sqrt(smallest * RATIO[0])))


def evaluation_square(image: Image.Image, size: int, centre: float = CENTRE) -> Image.Image:
    """Cut out the central square, `centre` of the shorter side, or take all of it at small sizes.

    By default that is the usual resize to 256 and crop of 224 in one step, so that a long thin
    image never becomes a huge one.
    """
    shape = torch.tensor([[image.height, image.width]])
    top, left, height, width = evaluation_boxes(shape, size, centre)[0].tolist()
    box = (left, top, left + width, top + height)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def evaluation_boxes(shapes: Tensor, size: int, centre: float = CENTRE) -> Tensor:
    """Return what is evaluated of images of heights and widths (B, 2): boxes (top, left, height,
    width), float64 (B, 4)."""
    if size < CENTRE_CROP_FROM:
        return torch.cat((torch.zeros_like(shapes), shapes), dim=1).double()
    side = shapes.double().amin(dim=1, keepdim=True) * centre
    return torch.cat(((shapes - side) / 2, side.expand(-1, 2)), dim=1)


class Crop(NamedTuple):
    """The RandomResizedCrop of an epoch: its random numbers, its smallest share of the area."""

    key: int | Tensor
    scale: float


def training_square(image: Image.Image, size: int, crop: Crop, position: int) -> Image.Image:
    """RandomResizedCrop with the random numbers of a position."""
    box = resized_crop_boxes(crop, torch.tensor([position]), image.height, image.width)[0]
    top, left, height, width = box.tolist()
    cut = image.crop((left, top, left + width, top + height))
    return cut.resize((size, size), Image.Resampling.BILINEAR)


def to_pixels(image: Image.Image) -> Tensor:
    """Return an image in mode L or RGB as uint8 (C, H, W)."""
    pixels: Tensor = tv.pil_to_tensor(image)
    return pixels


def resized_crop_boxes(
    crop: Crop, positions: Tensor, height: int | Tensor, width: int | Tensor
) -> Tensor:
    """Draw a box (top, left, height, width) for each position."""
    u = rng.uniform_double(crop.key, positions, 4 * TRIES)
    return crop_boxes(u, height, width, scale=(crop.scale, 1.0))

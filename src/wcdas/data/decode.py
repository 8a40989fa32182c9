"""Pictures are checked before they are decoded, and come out upright in mode L or RGB.

Transparent pixels are laid on white. 16-bit grey is scaled to 8 bits (65535 → 255), floating-point
grey is read as 0…1 if nothing in it is larger, else as 0…255. Of an animation the first frame
counts. A picture that claims more than 100 million pixels is refused from its header.
"""

import io
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from wcdas.errors import InputError

MAX_PIXELS = 100_000_000
# PostScript is a program, Windows metafiles are drawn by the system: neither is a picture to read.
REFUSED_FORMATS = {"EPS", "WMF"}
# A picture as a file stores it; a view of an Arrow table, which gives its bytes as well, is one.
Encoded = bytes | memoryview
GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}


class Header(NamedTuple):
    width: int
    height: int
    grey: bool


@cache
def formats() -> tuple[str, ...]:
    """The picture formats that are read, as PIL calls them."""
    Image.init()
    return tuple(name for name in Image.OPEN if name not in REFUSED_FORMATS)


@cache
def extensions() -> frozenset[str]:
    """The file extensions of pictures, in lower case with their dot."""
    known = Image.registered_extensions()
    return frozenset(extension for extension, name in known.items() if name in formats())


def check_image(source: Path | Encoded, name: str | None = None) -> Header:
    """Decode a picture once, JPEG at an eighth of its size, which finds truncated data too.

    Its size and colour are those of the header.
    """
    image = _open(source, name)
    header = Header(image.width, image.height, image.mode in GREY_MODES)
    image.draft(image.mode, (max(image.width // 8, 1), max(image.height // 8, 1)))
    _decode(image, source, name)
    image.close()
    return header


def open_image(source: Path | Encoded, channels: int, name: str | None = None) -> Image.Image:
    """The picture upright, in mode L for one channel and RGB for three.

    Raises:
        InputError: the picture is unreadable, truncated or too large; the message names it.
    """
    image = _open(source, name)
    _decode(image, source, name)
    try:
        return as_mode(image, channels)
    except (ValueError, OSError) as error:
        raise _unreadable(source, name, error) from error


def as_mode(image: Image.Image, channels: int) -> Image.Image:
    """An opened picture upright, in mode L for one channel and RGB for three."""
    return _convert(_upright(image), "L" if channels == 1 else "RGB")


def _open(source: Path | Encoded, name: str | None) -> Image.Image:
    try:
        file = source if isinstance(source, Path) else io.BytesIO(source)
        image = Image.open(file, formats=formats())
    # Damaged data makes PIL's readers fail in any way.
    except Exception as error:
        raise _unreadable(source, name, error) from error
    if image.width * image.height > MAX_PIXELS:
        image.close()
        raise InputError(
            f"{_called(source, name)} is {image.width}×{image.height} pixels; expected at most "
            f"{MAX_PIXELS:,} pixels. Make it smaller"
        )
    return image


def _decode(image: Image.Image, source: Path | Encoded, name: str | None) -> None:
    try:
        image.load()
    except Exception as error:
        raise _unreadable(source, name, error) from error


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    # The pixels are decoded already: only the EXIF block is damaged.
    except Exception:
        return image


def _convert(image: Image.Image, mode: str) -> Image.Image:
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
    return image.convert(mode)


def _called(source: Path | Encoded, name: str | None) -> str:
    return name or (str(source) if isinstance(source, Path) else "an image")


def _unreadable(source: Path | Encoded, name: str | None, error: Exception) -> InputError:
    if isinstance(error, UnidentifiedImageError):
        reason = "not an image that can be read"
    elif isinstance(error, Image.DecompressionBombError):
        reason = f"more than {MAX_PIXELS:,} pixels"
    elif isinstance(error, FileNotFoundError):
        reason = "no such file"
    else:
        reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(f"{_called(source, name)} cannot be read: {reason}")

"""Samples of a split as small pictures that a page can hold."""

import base64
import io

from PIL import Image

from wcdas.data.dataset import ArrayImages, Split, StoredImages
from wcdas.errors import InputError

SIDE = 96
EXACT = 40  # up to this side length nothing is lost


def thumbnail(split: Split, index: int) -> str | None:
    """A data URI; None for a sample that is no picture, or cannot be read any more."""
    picture = _picture(split, index)
    if picture is None:
        return None
    picture.thumbnail((SIDE, SIDE))
    kind = "PNG" if max(picture.size) <= EXACT else "JPEG"
    file = io.BytesIO()
    picture.save(file, kind, **({"quality": 80} if kind == "JPEG" else {"optimize": True}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def _picture(split: Split, index: int) -> Image.Image | None:
    if isinstance(split, ArrayImages):
        pixels = split.pixels[index].permute(1, 2, 0).numpy()
        return Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels)
    if isinstance(split, StoredImages):
        try:
            return split.load(index)
        except InputError:
            return None
    return None

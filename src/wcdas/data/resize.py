"""From a picture of any size to a square of pixels, for training and for evaluation."""

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from wcdas import rng
from wcdas.data.operations import TRIES, crop_boxes

CENTRE_CROP_FROM = 112  # from this side length on, evaluation cuts the centre out
SCALE = (0.08, 1.0)


def evaluation_square(image: Image.Image, size: int) -> Image.Image:
    """The whole picture at small sizes; else the central square of 224/256 of the shorter side.

    That is the usual resize to 256 and crop of 224 in one step, so that a long thin picture never
    becomes a huge one.
    """
    if size < CENTRE_CROP_FROM:
        return image.resize((size, size), Image.Resampling.BILINEAR)
    side = min(image.size) * 224 / 256
    left, top = ((length - side) / 2 for length in image.size)
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def training_square(image: Image.Image, size: int, key: int, position: int) -> Image.Image:
    """RandomResizedCrop, with the random numbers of (key, position)."""
    box = resized_crop_boxes(key, torch.tensor([position]), image.height, image.width)[0]
    top, left, height, width = box.tolist()
    cut = image.crop((left, top, left + width, top + height))
    return cut.resize((size, size), Image.Resampling.BILINEAR)


def to_pixels(image: Image.Image) -> Tensor:
    """A picture in mode L or RGB as uint8 (C, H, W)."""
    pixels: Tensor = tv.pil_to_tensor(image)
    return pixels


def resized_crop_boxes(key: int | Tensor, positions: Tensor, height: int, width: int) -> Tensor:
    """A random box (top, left, height, width) of 8 to 100 % of the area for each position."""
    u = rng.uniform_double(key, positions, 4 * TRIES)
    return crop_boxes(u, height, width, SCALE)

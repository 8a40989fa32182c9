"""From a picture of any size to a square of pixels, for training and for evaluation."""

import math

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from wcdas.data import random

CENTRE_CROP_FROM = 112  # from this side length on, evaluation cuts the centre out
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10


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


def resized_crop_boxes(key: int, positions: Tensor, height: int, width: int) -> Tensor:
    """A random box (top, left, height, width) for each position, int64 on the CPU.

    Inception's crop as torchvision draws it: an area of 8 to 100 % and a ratio of sides from 3/4
    to 4/3; the first of ten tries that fits, else the largest central box with a ratio in range.
    """
    u = random.uniform_double(key, positions.cpu(), 4 * TRIES).view(-1, TRIES, 4)
    area = height * width * (SCALE[0] + u[..., 0] * (SCALE[1] - SCALE[0]))
    low, high = (math.log(ratio) for ratio in RATIO)
    ratio = (low + u[..., 1] * (high - low)).exp()
    w = (area * ratio).sqrt().round().long()
    h = (area / ratio).sqrt().round().long()
    top = (u[..., 2] * (height - h + 1)).floor().long()
    left = (u[..., 3] * (width - w + 1)).floor().long()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    boxes = torch.stack((top, left, h, w), dim=-1)
    first = boxes[torch.arange(len(boxes)), fits.long().argmax(dim=1)]
    return torch.where(fits.any(dim=1, keepdim=True), first, _central_box(height, width))


def _central_box(height: int, width: int) -> Tensor:
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    return torch.tensor([(height - h) // 2, (width - w) // 2, h, w])

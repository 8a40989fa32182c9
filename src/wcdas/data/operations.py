"""Image operations on a batch of uint8 images (B, C, H, W), with parameters for each image.

Each does to every image what the tensor kernel of torchvision's functional of the same name does
with that image's parameter. Products and sums are rounded one by one, so that an image's result
depends neither on its neighbours in the batch nor on the device. Exactly torchvision's result,
except where torchvision fuses a product and a sum: contrast, saturation and sharpness may then
be one level off.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as nn
from torchvision.transforms.v2 import functional as tv

# These work on every image of a batch by itself already.
autocontrast = tv.autocontrast
equalize = tv.equalize
invert = tv.invert


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    return _levels(images * _per_image(factor))


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey level of the image."""
    grey = _grey(images) if images.shape[1] == 3 else images.float()
    mean = grey.sum(dim=(1, 2, 3), dtype=torch.float64) / grey[0].numel()
    return _blend(images, _per_image(mean), factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image; grey images stay as they are."""
    return _blend(images, _grey(images), factor) if images.shape[1] == 3 else images


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image smoothed by [[1, 1, 1], [1, 5, 1], [1, 1, 1]] / 13; the rim stays."""
    if min(images.shape[-2:]) <= 2:
        return images
    x = images.float()
    inner = x[..., 1:-1, 1:-1]
    columns = x[..., :-2] + x[..., 1:-1] + x[..., 2:]
    smooth = columns[..., :-2, :] + columns[..., 1:-1, :] + columns[..., 2:, :] + 4 * inner
    change = smooth.div_(13).round_().sub_(inner).mul_(_per_image(1 - factor.double()))
    inner += change
    return _levels(x)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` bits of every level."""
    keep = 256 - (1 << (8 - bits.long()))
    return images & keep.to(torch.uint8).view(-1, 1, 1, 1)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels from the threshold on."""
    return torch.where(images >= _per_image(threshold), ~images, images)


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    return transform(images, shear_x_matrix(amount, *images.shape[-2:]))


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    return transform(images, shear_y_matrix(amount, *images.shape[-2:]))


def translate_x(images: Tensor, pixels: Tensor) -> Tensor:
    return transform(images, translate_x_matrix(pixels, *images.shape[-2:]))


def translate_y(images: Tensor, pixels: Tensor) -> Tensor:
    return transform(images, translate_y_matrix(pixels, *images.shape[-2:]))


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    return transform(images, rotate_matrix(degrees, *images.shape[-2:]))


def shear_x_matrix(amount: Tensor, height: int, width: int) -> Tensor:
    """Where output pixels come from, (B, 2, 3) in pixels from the centre; the top row stays."""
    return _matrix(1, amount, amount * (height / 2), 0, 1, 0)


def shear_y_matrix(amount: Tensor, height: int, width: int) -> Tensor:
    return _matrix(1, 0, 0, amount, 1, amount * (width / 2))


def translate_x_matrix(pixels: Tensor, height: int, width: int) -> Tensor:
    return _matrix(1, 0, -pixels.trunc(), 0, 1, 0)


def translate_y_matrix(pixels: Tensor, height: int, width: int) -> Tensor:
    return _matrix(1, 0, 0, 0, 1, -pixels.trunc())


def rotate_matrix(degrees: Tensor, height: int, width: int) -> Tensor:
    angle = degrees.double().remainder(360) * (-math.pi / 180)
    return _matrix(angle.cos(), angle.sin(), 0, -angle.sin(), angle.cos(), 0)


def transform(images: Tensor, matrix: Tensor) -> Tensor:
    """Affine transform with the nearest pixel; what comes from outside is 0."""
    height, width = images.shape[-2:]
    m = matrix.float()[..., None, None]
    x = torch.linspace((1 - width) / 2, (width - 1) / 2, width, device=images.device)
    y = torch.linspace((1 - height) / 2, (height - 1) / 2, height, device=images.device)[:, None]
    columns = _source(x, y, m[:, 0] / (width / 2), width)
    rows = _source(x, y, m[:, 1] / (height / 2), height)
    return _pick(images, rows, columns)


def horizontal_flip(images: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the chosen images."""
    return torch.where(chosen.view(-1, 1, 1, 1), images.flip(-1), images)


def crop(images: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """Cut the original size out of images padded with zeros, from (top, left) on."""
    height, width = images.shape[-2:]
    windows = nn.pad(images, [padding] * 4).unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def resized_crop(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut (top, left, height, width) boxes out and enlarge them to a square, bilinear."""
    height, width = images.shape[-2:]
    box = boxes.to(images.device, torch.float32)[..., None]
    along = (torch.arange(size, device=images.device) + 0.5) / size
    y = (box[:, 0] + (along * box[:, 2]).clamp(min=0.5).minimum(box[:, 2] - 0.5)) / height * 2 - 1
    x = (box[:, 1] + (along * box[:, 3]).clamp(min=0.5).minimum(box[:, 3] - 0.5)) / width * 2 - 1
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), dim=-1)
    sampled = nn.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return sampled.round_().to(torch.uint8)


def cutout(images: Tensor, y: Tensor, x: Tensor, length: int, fill: Sequence[int] = (0,)) -> Tensor:
    """Cover a square round the centre (y, x), clipped at the border, with a level per channel.

    T. DeVries, G. Taylor, 2017, arXiv:1708.04552.
    """
    rows = _covered(y, images.shape[-2], length)[:, None, :, None]
    columns = _covered(x, images.shape[-1], length)[:, None, None, :]
    level = torch.tensor(fill, dtype=torch.uint8, device=images.device).view(1, -1, 1, 1)
    return torch.where(rows & columns, level, images)


def _covered(centre: Tensor, size: int, length: int) -> Tensor:
    distance = torch.arange(size, device=centre.device) - (centre[:, None] - length // 2)
    return (distance >= 0) & (distance < length)


def _per_image(parameter: Tensor) -> Tensor:
    return parameter.float().view(-1, 1, 1, 1)


def _levels(values: Tensor) -> Tensor:
    return values.clamp_(0, 255).to(torch.uint8)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    rest = _per_image(1 - factor.double())
    return _levels((images * _per_image(factor)).add_(other * rest))


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, dim=1)
    return (red * 0.2989).add_(green * 0.587).add_(blue * 0.114).floor_()


def _matrix(*entries: Tensor | float) -> Tensor:
    """Six entries, tensors (B,) or numbers, as matrices (B, 2, 3)."""
    like = next(e for e in entries if isinstance(e, Tensor)).double()
    columns = [e.double() if isinstance(e, Tensor) else torch.full_like(like, e) for e in entries]
    return torch.stack(columns, dim=1).view(-1, 2, 3)


def _source(x: Tensor, y: Tensor, row: Tensor, size: int) -> Tensor:
    """Nearest source index along one axis; the steps are those of grid_sample."""
    place = x * row[:, 0] + y * row[:, 1] + row[:, 2]
    return place.add_(1).mul_(size).sub_(1).div_(2).round_().long()


def _pick(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels at (rows, columns), each (B, H, W); 0 outside of the image."""
    channels, height, width = images.shape[1:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    index = (rows * width + columns).mul_(inside).flatten(1)[:, None].expand(-1, channels, -1)
    picked = images.flatten(2).gather(2, index).view_as(images)
    return picked.mul_(inside[:, None])

"""Operations on a batch of uint8 images (B, C, H, W), with parameters for each image.

Each does to every image what the tensor kernel of torchvision's functional of the same name does
with that image's parameter. Products and sums are rounded one by one, so that an image's result
depends neither on its neighbours in the batch nor on the device. Exactly torchvision's result,
except where torchvision fuses a product and a sum: blends, hue, sharpness and blur may then be one
level off. None waits for the device or copies from the host, so that a CUDA graph can hold them.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as nn

Side = int | Tensor  # a length of all images, or of each
RATIO = (3 / 4, 4 / 3)
TRIES = 10  # of a random box
BLUR_REACH = 6  # pixels to either side; three standard deviations of the strongest blur
PIXELS = 1 << 20  # worked on at a time by a CPU, whose larger buffers are slow to come by


def apply_changes(images: Tensor, changes: Mapping[str, Tensor]) -> Tensor:
    """Apply kinds of operations (`KINDS`) in turn, each with its parameters (B, n).

    On a GPU each kind is worked out for all images, so that no shape depends on what was drawn and
    nothing waits for the device. A CPU works on the images that change, and on no other.
    """
    if images.is_cuda:
        for name, parameters in changes.items():
            images = KINDS[name].function(images, parameters)
        return images
    images = images.clone()
    for name, parameters in changes.items():
        function, neutral = KINDS[name]
        at = (parameters != neutral).any(dim=1).nonzero()[:, 0]
        for part in at.split(max(1, PIXELS // images[0].numel())) if len(at) else ():
            images.index_copy_(0, part, function(images.index_select(0, part), parameters[part]))
    return images


def blend(images: Tensor, weights: Tensor) -> Tensor:
    """Weights (B, 3) times the image, its grey version and its mean grey level, added up.

    With a factor f brightness is (f, 0, 0), contrast (f, 0, 1 − f), saturation (f, 1 − f, 0).
    """
    own, grey, mean = weights.unbind(1)
    coloured = images.shape[1] == 3
    shades = _grey(images) if coloured else images.float()
    level = shades.sum(dim=(1, 2, 3), dtype=torch.float64) / shades[0].numel()
    other = _per_image(level) * _per_image(mean)
    if coloured:
        other = shades.mul_(_per_image(grey)).add_(other)
    else:  # the grey version is the image itself
        own = own.masked_fill(grey != 0, 1)
    return _levels((images * _per_image(own)).add_(other))


def hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the hues by a share of the circle, (B, 1); grey images stay as they are.

    In sixths of the circle the hue is h = {(G − B)/c, 2 + (B − R)/c, 4 + (R − G)/c} by the largest
    channel V, with c = V − min. A channel is V − c·clamp(min(k, 4 − k), 0, 1), k = n + h mod 6,
    with n = 5, 3, 1 for red, green, blue.
    """
    if images.shape[1] != 3:
        return images
    x = images.float()
    red, green, _ = x.split(1, dim=1)
    largest = x.amax(dim=1, keepdim=True)
    chroma = largest - x.amin(dim=1, keepdim=True)
    sixth = torch.linspace(0, 4, 3, device=x.device).view(3, 1, 1)
    candidates = (x.roll(-1, 1) - x.roll(-2, 1)).div_(chroma.clamp(min=1)).add_(sixth)
    of_red, of_green, of_blue = candidates.split(1, dim=1)
    h = torch.where(red == largest, of_red, torch.where(green == largest, of_green, of_blue))
    # min(k, 4 − k) is 2 less the distance of k from 2 on the circle.
    way = h + 6 * _per_image(turn) + (3 - sixth)
    distance = way.sub_((way * (1 / 6)).round_(), alpha=6).abs_()
    return _levels((largest - chroma * (2 - distance).clamp_(0, 1)).mul_(255.999 / 255))


def sharpness(images: Tensor, weight: Tensor) -> Tensor:
    """Blend with the image smoothed by [[1, 1, 1], [1, 5, 1], [1, 1, 1]] / 13; the rim stays.

    The weight (B, 1) of the smooth image is 1 − f with a factor f.
    """
    if min(images.shape[-2:]) <= 2:
        return images
    x = images.float()
    inner = x[..., 1:-1, 1:-1]
    columns = x[..., :-2] + x[..., 1:-1] + x[..., 2:]
    smooth = columns[..., :-2, :] + columns[..., 1:-1, :] + columns[..., 2:, :] + 4 * inner
    change = smooth.div_(13).round_().sub_(inner).mul_(_per_image(weight))
    inner += change
    return _levels(x)


def blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Blur with a Gaussian of standard deviation (B, 1) in pixels; the border is a mirror."""
    sides = images.shape[-2:]
    reach = min(BLUR_REACH, *(side - 1 for side in sides))
    way = torch.arange(-reach, reach + 1, device=images.device, dtype=torch.float64)
    weights = (-0.5 * (way / sigma.double().clamp(min=1e-3)) ** 2).exp()
    parts = (weights / weights.sum(1, keepdim=True)).unbind(1)
    x = images.float()
    for axis, padding in ((2, (0, 0, reach, reach)), (3, (reach, reach, 0, 0))):
        padded, x = nn.pad(x, padding, mode="reflect"), torch.zeros_like(x)
        for start, part in enumerate(parts):
            x += padded.narrow(axis, start, sides[axis - 2]) * _per_image(part)
    return _levels(x.round_())


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the bits of every level that are set in (B, 1) `bits`, from 0 to 255."""
    return images & bits.to(torch.uint8)[..., None, None]


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels from the threshold (B, 1) on."""
    inverted = images >= _per_image(threshold)
    return images ^ inverted.to(torch.uint8).mul_(255)


def autocontrast(images: Tensor, chosen: Tensor) -> Tensor:
    """Stretch each channel of the chosen images (B, 1) to 0 … 255, unless it has one level."""
    low, high = images.amin(dim=(2, 3)), images.amax(dim=(2, 3))
    still = (low == high) | (chosen == 0)
    start = low.masked_fill(still, 0)[..., None, None]
    scale = ((high - low) * (1 / 255)).masked_fill_(still, 1)[..., None, None]
    return _levels((images - start).div(scale))


def equalize(images: Tensor, chosen: Tensor) -> Tensor:
    """Make all levels of each channel of the chosen images (B, 1) about as frequent.

    Level k becomes ⌊(n_k + ⌊s/2⌋) / s⌋, where n_k pixels are darker, and s is a 255th of those
    that are not of the highest level; where that is 0, the channel stays.
    """
    flat = images.flatten(2)
    level = flat.long()
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int32, device=images.device)
    counts.scatter_add_(2, level, counts.new_ones(1).expand_as(level))
    darker = counts.cumsum(dim=2, dtype=torch.int32) - counts
    step = darker.gather(2, flat.amax(dim=2, keepdim=True).long()) // 255
    table = ((darker + step // 2) // step.clamp(min=1)).clamp_(max=255).to(torch.uint8)
    equal = table.gather(2, level)
    return torch.where((step > 0) & (chosen != 0)[..., None], equal, flat).view_as(images)


def affine(images: Tensor, matrix: Tensor) -> Tensor:
    """Affine transform with the nearest pixel; what comes from outside is 0.

    The matrices (B, 6) say where an output pixel comes from, in pixels from the centre.
    """
    height, width = images.shape[-2:]
    x = torch.linspace((1 - width) / 2, (width - 1) / 2, width, device=images.device)
    y = torch.linspace((1 - height) / 2, (height - 1) / 2, height, device=images.device)[:, None]
    size = torch.linspace(width, height, 2, device=images.device).view(2, 1, 1)
    of_x, of_y, constant = (matrix.float().view(-1, 2, 3, 1, 1) / (size / 2)[:, None]).unbind(2)
    # The steps of grid_sample; both axes at once, columns first.
    at = x * of_x + y * of_y + constant
    at.add_(1).mul_(size).sub_(1).div_(2).round_()
    within = (at >= 0) & (at < size)
    inside = within[:, 0] & within[:, 1]
    columns, rows = at.unbind(1)
    # float32 counts the pixels of up to 4096 × 4096 exactly.
    index = (rows * width + columns).mul_(inside).long().flatten(1)
    picked = images.flatten(2).gather(2, index[:, None].expand(-1, images.shape[1], -1))
    return picked.view_as(images).mul_(inside[:, None])


class Kind(NamedTuple):
    """A function of the images and of parameters (B, n), and the parameters that change nothing."""

    function: Callable[[Tensor, Tensor], Tensor]
    neutral: Tensor


KINDS = {
    function.__name__: Kind(function, torch.tensor(neutral, dtype=torch.float32))
    for function, neutral in (
        (affine, (1, 0, 0, 0, 1, 0)),
        (blend, (1, 0, 0)),
        (hue, (0,)),
        (sharpness, (0,)),
        (blur, (0,)),
        (posterize, (255,)),
        (solarize, (256,)),
        (autocontrast, (0,)),
        (equalize, (0,)),
    )
}


def crop_boxes(u: Tensor, height: Side, width: Side, scale: tuple[float, float]) -> Tensor:
    """Return boxes (top, left, height, width), int64 (B, 4), from u (B, 4·TRIES) in [0, 1).

    Heights and widths are those of all images, or (B,) of each.

    Inception's crop as torchvision draws it: an area of `scale` of the image and a ratio of sides
    from 3/4 to 4/3; the first try that fits, else the largest central box with a ratio in range.
    """
    height, width = _of_each(u, height), _of_each(u, width)
    tall = torch.minimum(height, (width / RATIO[0]).round())
    wide = torch.minimum(width, (height * RATIO[1]).round())
    central = ((height - tall) // 2, (width - wide) // 2, tall, wide)
    return _first_box(u, (height, width), (height, width), scale, RATIO, central)


def erased_boxes(u: Tensor, height: int, width: int) -> Tensor:
    """Return the boxes of random erasing, as `crop_boxes` does; an empty one where no try fits.

    As torchvision draws them: 2 to 33 % of the area, a ratio of sides from 0.3 to 3.3, and smaller
    than the image both ways.
    """
    largest, none = (height - 1, width - 1), (0, 0, 0, 0)
    return _first_box(u, (height, width), largest, (0.02, 0.33), (1 / 3.3, 1 / 0.3), none)


def _first_box(
    u: Tensor,
    image: tuple[Side, Side],
    largest: tuple[Side, Side],
    scale: tuple[float, float],
    ratios: tuple[float, float],
    last: tuple[Side, Side, Side, Side],
) -> Tensor:
    """Return of TRIES random boxes the first of at most the `largest` height and width.

    Their areas are shares of the image's within `scale`, their widths within `ratios` of their
    heights. The `last` box is one try more, which always fits.
    """
    height, width = image
    size, shape, down, right = u.double().view(-1, TRIES, 4).unbind(2)
    area = height * width * (scale[0] + size * (scale[1] - scale[0]))
    low, high = (math.log(side) for side in ratios)
    ratio = (low + shape * (high - low)).exp()
    w = (area * ratio).sqrt().round()
    h = (area / ratio).sqrt().round()
    top = (down * (height - h + 1)).floor()
    left = (right * (width - w + 1)).floor()
    fits = (w > 0) & (w <= largest[1]) & (h > 0) & (h <= largest[0])
    first = nn.pad(fits.double(), (0, 1), value=1).argmax(dim=1, keepdim=True)
    boxes = [
        torch.cat((tries, _of_each(u, final)), dim=1).gather(1, first)
        for tries, final in zip((top, left, h, w), last, strict=True)
    ]
    return torch.cat(boxes, dim=1).long()


def _of_each(u: Tensor, side: Side) -> Tensor:
    """Return a number of all images, or (B,) or (B, 1) of each, as float64 (B, 1)."""
    if isinstance(side, Tensor):
        return side.double().view(-1, 1)
    return u.new_full((len(u), 1), side, dtype=torch.float64)


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


def _per_image(parameter: Tensor) -> Tensor:
    return parameter.float().view(-1, 1, 1, 1)


def _levels(values: Tensor) -> Tensor:
    return values.clamp_(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, dim=1)
    return (red * 0.2989).add_(green * 0.587).add_(blue * 0.114).floor_()

"""The end of a residual block, and the start of its backward pass.

    a = max(z + shortcut(x), 0),   ∂L/∂z = ∂L/∂a where a > 0,

with z of the batch norm. The shortcut takes every s-th place and puts zeros around the channels.
Without a shortcut it is the batch norm and ReLU behind the first convolution.
"""

import torch
from torch import Tensor

from wcdas.kernels.batch_norm import normalised
from wcdas.kernels.input_gradient import masked_with_sums
from wcdas.kernels.launches import RESIDUAL
from wcdas.kernels.triton_language import jit, tl


@jit
def _residual_kernel(  # type: ignore[no-untyped-def]
    y,
    norm,
    x,
    activation,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_HEIGHT: tl.constexpr,
    IN_WIDTH: tl.constexpr,
    IN_CHANNELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    STRIDE: tl.constexpr,
    SHORTCUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    channel = tl.arange(0, CHANNELS)
    mean = tl.load(norm + channel)[None, :]
    scale = tl.load(norm + 2 * CHANNELS + channel)[None, :]
    shift = tl.load(norm + 3 * CHANNELS + channel)[None, :]
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = (pixel < pixels)[:, None]
    place = pixel[:, None] * CHANNELS + channel[None, :]
    z = normalised(tl.load(y + place, mask=valid, other=0.0), mean, scale, shift)
    if SHORTCUT:
        column = pixel % WIDTH * STRIDE
        row = pixel // WIDTH % HEIGHT * STRIDE
        image = pixel // (HEIGHT * WIDTH)
        source = channel - (CHANNELS - IN_CHANNELS) // 2
        there = valid & ((source >= 0) & (source < IN_CHANNELS))[None, :]
        from_place = ((image * IN_HEIGHT + row) * IN_WIDTH + column) * IN_CHANNELS
        shortcut = tl.load(x + from_place[:, None] + source[None, :], mask=there, other=0.0)
        z += shortcut.to(tl.float32)
    tl.store(activation + place, tl.maximum(z, 0.0).to(activation.dtype.element_ty), mask=valid)


def residual(y: Tensor, norm: Tensor, x: Tensor | None = None, stride: int = 1) -> Tensor:
    """a.

    Args:
        y: (images, height, width, channels), the input of the batch norm.
        norm: of the batch norm, see `wcdas.kernels.batch_norm`.
        x: the start of the shortcut; None without one.
    """
    height, width, channels = y.shape[1:]
    launch = RESIDUAL[channels]
    pixels = y.numel() // channels
    start = y if x is None else x
    activation = torch.empty_like(y)
    _residual_kernel[(-(-pixels // launch.block),)](
        y,
        norm,
        start,
        activation,
        pixels,
        HEIGHT=height,
        WIDTH=width,
        IN_HEIGHT=start.shape[1],
        IN_WIDTH=start.shape[2],
        IN_CHANNELS=start.shape[3],
        CHANNELS=channels,
        STRIDE=stride,
        SHORTCUT=x is not None,
        BLOCK=launch.block,
        num_warps=launch.warps,
    )
    return activation


@jit
def _residual_gradient_kernel(  # type: ignore[no-untyped-def]
    gradient,
    activation,
    y,
    norm,
    result,
    partials,
    pixels,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    channel = tl.arange(0, CHANNELS)
    mean = tl.load(norm + channel)[None, :]
    inverse_deviation = tl.load(norm + CHANNELS + channel)[None, :]
    first_sum = tl.zeros([CHANNELS], tl.float32)
    second_sum = tl.zeros([CHANNELS], tl.float32)
    for block in range(BLOCKS):
        pixel = (tl.program_id(0) * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
        valid = (pixel < pixels)[:, None]
        place = pixel[:, None] * CHANNELS + channel[None, :]
        active = tl.load(activation + place, mask=valid, other=0.0).to(tl.float32) > 0
        by_a = tl.load(gradient + place, mask=valid, other=0.0).to(tl.float32)
        y_here = tl.load(y + place, mask=valid, other=0.0)
        masked, first, second = masked_with_sums(
            by_a, y_here, active, mean, inverse_deviation, result
        )
        tl.store(result + place, masked, mask=valid)
        first_sum += first
        second_sum += second
    row_of_partials = partials + tl.program_id(0) * (2 * CHANNELS)
    tl.store(row_of_partials + channel, first_sum)
    tl.store(row_of_partials + CHANNELS + channel, second_sum)


def residual_gradient(
    gradient: Tensor, activation: Tensor, y: Tensor, norm: Tensor
) -> tuple[Tensor, Tensor]:
    """∂L/∂z from ∂L/∂a, and (programs, 2, channels) partial sums for the batch norm."""
    channels = y.shape[3]
    launch = RESIDUAL[channels]
    pixels = y.numel() // channels
    programs = launch.grid(pixels)
    result = torch.empty_like(y)
    partials = torch.empty(programs, 2, channels, device=y.device)
    _residual_gradient_kernel[(programs,)](
        gradient,
        activation,
        y,
        norm,
        result,
        partials,
        pixels,
        CHANNELS=channels,
        BLOCK=launch.block,
        BLOCKS=launch.blocks(pixels),
        num_warps=launch.warps,
    )
    return result, partials

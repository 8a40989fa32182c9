"""A 3×3 convolution that normalises its input and measures its output on the way.

Maps are (images, height, width, channels), contiguous; weights (9, input, output channels). With
taps t, the input's norm folded into the load and zeros around the picture,

    y[p] = Σ_t max(γr(x[sp + t] − μ) + β, 0)·W_t.
"""

import torch
from torch import Tensor

from wcdas.kernels.batch_norm import Measured, normalised, padded
from wcdas.kernels.launches import FORWARD, Launch
from wcdas.kernels.triton_language import jit, precision, product, tl


@jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x,
    norm,
    weight,
    y,
    partials,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_CHANNELS: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    CHANNELS: tl.constexpr,
    STRIDE: tl.constexpr,
    NORMALISE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    OUT_HEIGHT: tl.constexpr = (HEIGHT - 1) // STRIDE + 1
    OUT_WIDTH: tl.constexpr = (WIDTH - 1) // STRIDE + 1
    source = tl.arange(0, BLOCK_IN)
    known = source < IN_CHANNELS
    channel = tl.arange(0, CHANNELS)
    if NORMALISE:
        mean_in = tl.load(norm + source, mask=known, other=0.0)[None, :]
        scale_in = tl.load(norm + 2 * IN_CHANNELS + source, mask=known, other=0.0)[None, :]
        shift_in = tl.load(norm + 3 * IN_CHANNELS + source, mask=known, other=0.0)[None, :]

    mean = tl.zeros([CHANNELS], tl.float32)
    squares = tl.zeros([CHANNELS], tl.float32)
    for block in range(BLOCKS):
        start = (tl.program_id(0) * BLOCKS + block) * BLOCK
        pixel = start + tl.arange(0, BLOCK)
        column = pixel % OUT_WIDTH * STRIDE
        row = pixel // OUT_WIDTH % OUT_HEIGHT * STRIDE
        image = pixel // (OUT_HEIGHT * OUT_WIDTH)

        total = tl.zeros([BLOCK, CHANNELS], tl.float32)
        for tap in tl.static_range(9):
            down = row + (tap // 3 - 1)
            along = column + (tap % 3 - 1)
            inside = (pixel < pixels) & (down >= 0) & (down < HEIGHT)
            inside = inside & (along >= 0) & (along < WIDTH)
            place = ((image * HEIGHT + down) * WIDTH + along) * IN_CHANNELS
            there = inside[:, None] & known[None, :]
            values = tl.load(x + place[:, None] + source[None, :], mask=there, other=0.0)
            if NORMALISE:
                z = normalised(values, mean_in, scale_in, shift_in)
                values = tl.where(there, tl.maximum(z, 0.0), 0.0).to(values.dtype)
            of_tap = weight + (tap * IN_CHANNELS + source[:, None]) * CHANNELS + channel[None, :]
            total = product(
                values, tl.load(of_tap, mask=known[:, None], other=0.0), total, PRECISION
            )

        rounded = total.to(y.dtype.element_ty)
        valid = (pixel < pixels)[:, None]
        tl.store(y + pixel[:, None] * CHANNELS + channel[None, :], rounded, mask=valid)

        # The blocks before, `seen` pixels, and this one with `count`: two samples become one.
        seen = block * BLOCK * 1.0
        count = tl.maximum(tl.minimum(pixels - start, BLOCK), 0) * 1.0
        values = rounded.to(tl.float32)
        block_mean = tl.sum(values, 0) / tl.maximum(count, 1.0)
        distance = tl.where(valid, values - block_mean[None, :], 0.0)
        shift = block_mean - mean
        share = count / (seen + count)
        squares += tl.sum(distance * distance, 0) + shift * shift * seen * share
        mean += shift * share

    row_of_partials = partials + tl.program_id(0) * (2 * CHANNELS)
    tl.store(row_of_partials + channel, mean)
    tl.store(row_of_partials + CHANNELS + channel, squares)


def convolution(
    x: Tensor, norm: Tensor | None, weight: Tensor, stride: int, launch: Launch | None = None
) -> tuple[Tensor, Measured]:
    """y, and the partial statistics of its batch norm.

    Args:
        x: (images, height, width, input channels).
        norm: of the batch norm and ReLU before the convolution; None if x is taken as it is.
        weight: (9, input channels, channels).
    """
    images, height, width, in_channels = x.shape
    channels = weight.shape[2]
    launch = launch or FORWARD[channels]
    y = x.new_empty(images, (height - 1) // stride + 1, (width - 1) // stride + 1, channels)
    pixels = y.numel() // channels
    programs = launch.grid(pixels)
    partials = torch.empty(programs, 2, channels, device=x.device)
    _forward_kernel[(programs,)](
        x,
        x if norm is None else norm,
        weight,
        y,
        partials,
        pixels,
        HEIGHT=height,
        WIDTH=width,
        IN_CHANNELS=in_channels,
        BLOCK_IN=padded(in_channels),
        CHANNELS=channels,
        STRIDE=stride,
        NORMALISE=norm is not None,
        PRECISION=precision(x.dtype),
        BLOCK=launch.block,
        BLOCKS=launch.blocks(pixels),
        num_warps=launch.warps,
        num_stages=launch.stages_for(x.dtype),
    )
    return y, Measured(partials, pixels, launch.block * launch.blocks(pixels))

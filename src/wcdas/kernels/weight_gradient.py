"""The gradient of a 3×3 convolution by its weight, cut along the pixels.

    ∂L/∂W_t = Σ_p u[sp + t]ᵀ·∂L/∂y[p],   u = x or max(γr(x − μ) + β, 0),

where ∂L/∂y comes through the batch norm behind the convolution. A program sums the pixels of its
run for all nine taps; the programs' sums are added afterwards, so that no order is left to chance.
"""

import torch
from torch import Tensor

from wcdas.kernels.batch_norm import (
    gradient_coefficients,
    gradient_of_input,
    normalised,
    padded,
)
from wcdas.kernels.input_gradient import Normalised
from wcdas.kernels.launches import WEIGHT_GRADIENT, Launch
from wcdas.kernels.partial_sums import sum_weights
from wcdas.kernels.triton_language import jit, precision, product, tl


@jit
def _weight_gradient_kernel(  # type: ignore[no-untyped-def]
    x,
    x_norm,
    gradient,
    y,
    norm,
    sums,
    partials,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_CHANNELS: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
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
    channel = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    mean, scale, slope, offset = gradient_coefficients(norm, sums, channel, pixels, CHANNELS)
    if NORMALISE:
        x_mean = tl.load(x_norm + source, mask=known, other=0.0)[None, :]
        x_scale = tl.load(x_norm + 2 * IN_CHANNELS + source, mask=known, other=0.0)[None, :]
        x_shift = tl.load(x_norm + 3 * IN_CHANNELS + source, mask=known, other=0.0)[None, :]
    else:
        x_mean, x_scale, x_shift = 0.0, 0.0, 0.0

    zero = tl.zeros([BLOCK_IN, BLOCK_OUT], tl.float32)
    totals = (zero, zero, zero, zero, zero, zero, zero, zero, zero)
    for block in range(BLOCKS):
        pixel = (tl.program_id(0) * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
        valid = pixel < pixels
        column = pixel % OUT_WIDTH * STRIDE
        row = pixel // OUT_WIDTH % OUT_HEIGHT * STRIDE
        image = pixel // (OUT_HEIGHT * OUT_WIDTH)
        place = pixel[:, None] * CHANNELS + channel[None, :]
        by_z = tl.load(gradient + place, mask=valid[:, None], other=0.0)
        y_here = tl.load(y + place, mask=valid[:, None], other=0.0)
        by_y = gradient_of_input(by_z, y_here, mean, scale, slope, offset)
        by_y = tl.where(valid[:, None], by_y, 0.0).to(by_z.dtype)

        added = ()
        for tap in tl.static_range(9):
            down = row + (tap // 3 - 1)
            along = column + (tap % 3 - 1)
            inside = valid & (down >= 0) & (down < HEIGHT) & (along >= 0) & (along < WIDTH)
            there = inside[:, None] & known[None, :]
            place = ((image * HEIGHT + down) * WIDTH + along) * IN_CHANNELS
            values = tl.load(x + place[:, None] + source[None, :], mask=there, other=0.0)
            if NORMALISE:
                z = normalised(values, x_mean, x_scale, x_shift)
                values = tl.where(there, tl.maximum(z, 0.0), 0.0).to(values.dtype)
            total = product(tl.trans(values), by_y, totals[tap], PRECISION)
            # Triton cannot read a starred tuple.
            added = added + (total,)  # type: ignore[assignment]  # noqa: RUF005
        totals = added  # type: ignore[assignment]

    place = tl.program_id(0) * 9 * IN_CHANNELS + source[:, None]
    for tap in tl.static_range(9):
        of_tap = (place + tap * IN_CHANNELS) * CHANNELS + channel[None, :]
        tl.store(partials + of_tap, totals[tap], mask=known[:, None])


def weight_gradient(
    x: Tensor, x_norm: Tensor | None, output: Normalised, stride: int, launch: Launch | None = None
) -> Tensor:
    """∂L/∂W as (channels, input channels, 3, 3), in float32.

    Args:
        x: (images, height, width, input channels).
        x_norm: of the batch norm and ReLU before the convolution; None if x is taken as it is.
        output: the batch norm behind the convolution.
    """
    gradient, y, norm, sums = output
    height, width, in_channels = x.shape[1:]
    channels = y.shape[3]
    launch = launch or WEIGHT_GRADIENT[channels]
    pixels = y.numel() // channels
    programs = launch.grid(pixels)
    partials = torch.empty(programs, 9, in_channels, channels, device=x.device)
    _weight_gradient_kernel[(programs, channels // launch.channels)](
        x,
        x if x_norm is None else x_norm,
        gradient,
        y,
        norm,
        sums,
        partials,
        pixels,
        HEIGHT=height,
        WIDTH=width,
        IN_CHANNELS=in_channels,
        BLOCK_IN=padded(in_channels),
        CHANNELS=channels,
        BLOCK_OUT=launch.channels,
        STRIDE=stride,
        NORMALISE=x_norm is not None,
        PRECISION=precision(x.dtype),
        BLOCK=launch.block,
        BLOCKS=launch.blocks(pixels),
        num_warps=launch.warps,
        num_stages=launch.stages_for(x.dtype),
    )
    return sum_weights(partials)

"""The gradient of a 3×3 convolution and its batch norm by the convolution's input.

The gradient g by the batch norm's output passes the batch norm while it is loaded, and the
transposed convolution has the input's places p, for those taps t where (p − t)/s is a place:

    G[p] = Σ_t ∂L/∂y[(p − t)/s]·W_tᵀ + what comes back through the shortcut.

Where the input is itself a ReLU of a batch norm, G is masked by it, and the two sums that this
batch norm's backward pass needs are taken on the way.
"""

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from wcdas.kernels.batch_norm import (
    gradient_coefficients,
    gradient_of_input,
    normalised,
    padded,
)
from wcdas.kernels.launches import INPUT_GRADIENT, Launch
from wcdas.kernels.triton_language import jit, precision, product, tl


class Normalised(NamedTuple):
    """A batch norm in the backward pass.

    Args:
        gradient: ∂L/∂z, by its output.
        y: its input.
        norm: its `norm`, see `wcdas.kernels.batch_norm`.
        sums: (2, channels), Σ ∂L/∂z and Σ x̂ ∂L/∂z.
    """

    gradient: Tensor
    y: Tensor
    norm: Tensor
    sums: Tensor


class Source(NamedTuple):
    """What a map before a convolution was made of: max(z, 0), or max(z + shortcut, 0).

    Args:
        y: the input of its batch norm.
        norm: of its batch norm.
        activation: the map itself, if there was a shortcut.
    """

    y: Tensor
    norm: Tensor
    activation: Tensor | None = None


class Kind(IntEnum):
    GIVEN = 0
    NORMALISED = 1
    ACTIVATION = 2


@jit
def masked_with_sums(  # type: ignore[no-untyped-def]
    gradient, y, active, mean, inverse_deviation, result
):
    """g where the ReLU let through, in the type of `result`; Σ g and Σ x̂g over the places."""
    masked = tl.where(active, gradient, 0.0).to(result.dtype.element_ty)
    rounded = masked.to(tl.float32)
    x = (y.to(tl.float32) - mean) * inverse_deviation
    return masked, tl.sum(rounded, 0), tl.sum(rounded * x, 0)


@jit
def _input_gradient_kernel(  # type: ignore[no-untyped-def]
    gradient,
    y,
    norm,
    sums,
    weight,
    shortcut,
    source_y,
    source_norm,
    activation,
    result,
    partials,
    pixels,
    places,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    OUT_CHANNELS: tl.constexpr,
    STRIDE: tl.constexpr,
    SHORTCUT: tl.constexpr,
    SOURCE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    OUT_HEIGHT: tl.constexpr = (HEIGHT - 1) // STRIDE + 1
    OUT_WIDTH: tl.constexpr = (WIDTH - 1) // STRIDE + 1
    channel = tl.arange(0, BLOCK_IN)
    known = channel < CHANNELS
    out = tl.arange(0, OUT_CHANNELS)
    mean, scale, slope, offset = gradient_coefficients(norm, sums, out, places, OUT_CHANNELS)

    if SOURCE > 0:
        source_mean = tl.load(source_norm + channel, mask=known, other=0.0)[None, :]
        source_inverse = tl.load(source_norm + CHANNELS + channel, mask=known, other=0.0)[None, :]
        source_scale = tl.load(source_norm + 2 * CHANNELS + channel, mask=known, other=0.0)[None, :]
        source_shift = tl.load(source_norm + 3 * CHANNELS + channel, mask=known, other=0.0)[None, :]
    first_sum = tl.zeros([BLOCK_IN], tl.float32)
    second_sum = tl.zeros([BLOCK_IN], tl.float32)

    for block in range(BLOCKS):
        pixel = (tl.program_id(0) * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
        column = pixel % WIDTH
        row = pixel // WIDTH % HEIGHT
        image = pixel // (HEIGHT * WIDTH)
        valid = pixel < pixels

        total = tl.zeros([BLOCK, BLOCK_IN], tl.float32)
        for tap in tl.static_range(9):
            up = row - (tap // 3 - 1)
            back = column - (tap % 3 - 1)
            inside = valid & (up >= 0) & (up < OUT_HEIGHT * STRIDE)
            inside = inside & (back >= 0) & (back < OUT_WIDTH * STRIDE)
            inside = inside & (up % STRIDE == 0) & (back % STRIDE == 0)
            there = inside[:, None] & (out >= 0)[None, :]
            place = (image * OUT_HEIGHT + up // STRIDE) * OUT_WIDTH + back // STRIDE
            place = place[:, None] * OUT_CHANNELS + out[None, :]
            by_z = tl.load(gradient + place, mask=there, other=0.0)
            y_there = tl.load(y + place, mask=there, other=0.0)
            by_y = gradient_of_input(by_z, y_there, mean, scale, slope, offset)
            by_y = tl.where(there, by_y, 0.0).to(by_z.dtype)
            of_tap = weight + (tap * CHANNELS + channel[:, None]) * OUT_CHANNELS + out[None, :]
            of_tap = tl.load(of_tap, mask=known[:, None], other=0.0)
            total = product(by_y, tl.trans(of_tap), total, PRECISION)

        # The shortcut took every STRIDE-th place and put new channels around the old ones.
        if SHORTCUT:
            PADDING: tl.constexpr = (OUT_CHANNELS - CHANNELS) // 2
            there = valid & (row % STRIDE == 0) & (column % STRIDE == 0)
            place = (image * OUT_HEIGHT + row // STRIDE) * OUT_WIDTH + column // STRIDE
            place = place[:, None] * OUT_CHANNELS + PADDING + channel[None, :]
            total += tl.load(shortcut + place, mask=there[:, None], other=0.0).to(tl.float32)

        place = pixel[:, None] * CHANNELS + channel[None, :]
        there = valid[:, None] & known[None, :]
        if SOURCE == 0:
            tl.store(result + place, total.to(result.dtype.element_ty), mask=there)
        else:
            y_here = tl.load(source_y + place, mask=there, other=0.0)
            if SOURCE == 1:
                active = normalised(y_here, source_mean, source_scale, source_shift) > 0
            else:
                active = tl.load(activation + place, mask=there, other=0.0).to(tl.float32) > 0
            masked, first, second = masked_with_sums(
                total, y_here, active & there, source_mean, source_inverse, result
            )
            tl.store(result + place, masked, mask=there)
            first_sum += first
            second_sum += second

    if SOURCE > 0:
        row_of_partials = partials + tl.program_id(0) * (2 * CHANNELS)
        tl.store(row_of_partials + channel, first_sum, mask=known)
        tl.store(row_of_partials + CHANNELS + channel, second_sum, mask=known)


def input_gradient(
    output: Normalised,
    weight: Tensor,
    stride: int,
    size: tuple[int, int],
    source: Source | None = None,
    shortcut: Tensor | None = None,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor]:
    """∂L/∂input, and (programs, 2, channels) partial sums for the batch norm before the input.

    With a `source` it is the gradient by that batch norm's output, hence masked by the ReLU;
    without one the sums are empty.

    Args:
        output: the batch norm behind the convolution.
        weight: (9, input channels, channels).
        size: height and width of the input.
        shortcut: the gradient by the end of a shortcut that starts from the input.
    """
    gradient, y, norm, sums = output
    images, (height, width) = len(y), size
    channels, out_channels = weight.shape[1:]
    launch = launch or INPUT_GRADIENT[padded(channels), stride]
    pixels = images * height * width
    programs = launch.grid(pixels)
    result = gradient.new_empty(images, height, width, channels)
    partials = torch.empty(programs if source else 0, 2, channels, device=y.device)
    kind = Kind.GIVEN
    if source is not None:
        kind = Kind.NORMALISED if source.activation is None else Kind.ACTIVATION
    _input_gradient_kernel[(programs,)](
        gradient,
        y,
        norm,
        sums,
        weight,
        gradient if shortcut is None else shortcut,
        y if source is None else source.y,
        norm if source is None else source.norm,
        y if source is None or source.activation is None else source.activation,
        result,
        partials,
        pixels,
        y.numel() // out_channels,
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        BLOCK_IN=padded(channels),
        OUT_CHANNELS=out_channels,
        STRIDE=stride,
        SHORTCUT=shortcut is not None,
        SOURCE=int(kind),
        PRECISION=precision(y.dtype),
        BLOCK=launch.block,
        BLOCKS=launch.blocks(pixels),
        num_warps=launch.warps,
        num_stages=launch.stages_for(y.dtype),
    )
    return result, partials

"""The rows of partial sums that programs leave, added in the same order every time."""

import torch
from torch import Tensor

from wcdas.kernels.triton_language import jit, tl


@jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    partials,
    result,
    columns,
    ROWS: tl.constexpr,
    IN_CHANNELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    column = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    for start in range(0, ROWS, BLOCK_ROWS):
        row = start + tl.arange(0, BLOCK_ROWS)
        there = (row < ROWS)[:, None] & (column < columns)[None, :]
        places = partials + row[:, None] * columns + column[None, :]
        total += tl.load(places, mask=there, other=0.0)
    if IN_CHANNELS == 0:
        place = column
    else:  # (tap, input, output) → (output, input, tap)
        channel = column % CHANNELS
        source = column // CHANNELS % IN_CHANNELS
        place = (channel * IN_CHANNELS + source) * 9 + column // (CHANNELS * IN_CHANNELS)
    tl.store(result + place, tl.sum(total, 0), mask=column < columns)


def sum_rows(partials: Tensor) -> Tensor:
    """Σ_p partials[p]."""
    rows, columns = len(partials), partials[0].numel()
    result = torch.empty_like(partials[0])
    grid = (-(-columns // 16),)
    _sum_kernel[grid](partials, result, columns, rows, 0, 1, BLOCK_ROWS=128, BLOCK_COLUMNS=16)
    return result


def sum_weights(partials: Tensor) -> Tensor:
    """Σ_p of (9, input, output channels), as a weight (output, input channels, 3, 3)."""
    rows, taps, in_channels, channels = partials.shape
    columns = taps * in_channels * channels
    result = partials.new_empty(channels, in_channels, 3, 3)
    block = 64 if columns < 2**14 else 256
    _sum_kernel[(-(-columns // block),)](
        partials,
        result,
        columns,
        rows,
        in_channels,
        channels,
        BLOCK_ROWS=2048 // block,
        BLOCK_COLUMNS=block,
    )
    return result

"""Which kernels a residual network runs, and where its weights lie."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor

from wcdas.backbones.resnet32_gpu.kernel import Kernel

PLAIN, RELU_NORM, GRADIENT = 0, 1, 2  # what a convolution loads
MEASURED, NORMALISED, ACTIVATION = 0, 1, 2  # what it stores
PLACES = {16: 512, 32: 256, 64: 64}  # of a convolution's tile at most, by output channels
WEIGHT_PLACES = {16: 256, 32: 128, 64: 64}  # of a weight gradient's
WEIGHT_PROGRAMS = {16: 264, 32: 132, 64: 33}  # that share the tiles, by output channels
BLOCK_END_PROGRAMS = 1056
FIRST_CHANNELS = 16  # of the layer before the blocks
SHARED_BYTES, TILE_BYTES = 48 * 1024, 40 * 1024
COPIES = 16  # of the sums of a batch norm


def tile_bytes(rows: int, width: int, stride: int, depth: int) -> int:
    """Shared memory for what `rows` rows of output read."""
    return ((rows - 1) * stride + 3) * ((width - 1) * stride + 3) * (depth + 8) * 2


def tile_rows(size: tuple[int, int], places: int, stride: int, depth: int) -> int:
    """Rows of a tile: a divisor of the height, so that all tiles are alike."""
    height, width = size
    return max(
        rows
        for rows in range(1, height + 1)
        if height % rows == 0
        and (rows == 1 or rows * width <= places)
        and (rows == 1 or tile_bytes(rows, width, stride, depth) <= TILE_BYTES)
    )


@dataclass(frozen=True)
class Layer:
    """A 3×3 convolution with the batch norm behind it; `height` and `width` are of its input."""

    in_channels: int
    channels: int
    stride: int
    height: int
    width: int

    @property
    def out_size(self) -> tuple[int, int]:
        return (self.height - 1) // self.stride + 1, (self.width - 1) // self.stride + 1

    @property
    def depth(self) -> int:
        """Input channels as the products of matrices take them, a multiple of 16."""
        return -(-self.in_channels // 16) * 16

    @property
    def weights(self) -> int:
        return 9 * self.in_channels * self.channels

    @property
    def rows(self) -> int:
        """The rows of a tile of the output."""
        return tile_rows(self.out_size, PLACES[self.channels], self.stride, self.depth)

    @property
    def weight_rows(self) -> int:
        """The same for the weight gradient."""
        return tile_rows(self.out_size, WEIGHT_PLACES[self.channels], self.stride, self.depth)

    @property
    def in_rows(self) -> int:
        """The rows of a tile of the input, for its gradient."""
        size = (self.height, self.width)
        return tile_rows(size, PLACES[self.in_channels], 1, self.channels)

    @property
    def block(self) -> int:
        """Output channels that a program of the weight gradient has."""
        return min(self.channels, 1024 // self.depth)

    def forward(self, load: int) -> Kernel:
        sizes = (self.height, self.width, *self.out_size)
        channels = (self.in_channels, self.channels)
        numbers = (load, MEASURED, *channels, *sizes, self.stride, 1, self.rows)
        return Kernel("convolution", numbers)

    def input_gradient(self, store: int) -> Kernel:
        sizes = (*self.out_size, self.height, self.width)
        channels = (self.channels, self.in_channels)
        numbers = (GRADIENT, store, *channels, *sizes, 1, self.stride, self.in_rows)
        return Kernel("convolution", numbers)

    def weight_gradient(self, load: int) -> Kernel:
        sizes = (self.height, self.width, *self.out_size)
        channels = (self.in_channels, self.channels, self.block)
        numbers = (load, *channels, *sizes, self.stride, self.weight_rows)
        return Kernel("weight_gradient", numbers)

    @property
    def weight_sum(self) -> Kernel:
        return Kernel("weight_sum", (self.in_channels, self.channels))

    def end(self, start: "Layer | None") -> Kernel:
        """The end of the block that this layer is the last of and `start` the first."""
        if start is None:
            numbers = (0, self.channels, *self.out_size, *self.out_size, 1)
        else:
            before = (start.height, start.width, start.stride)
            numbers = (start.in_channels, self.channels, *self.out_size, *before)
        return Kernel("block_end", numbers)

    @property
    def backward_start(self) -> Kernel:
        return Kernel("backward_start", (self.channels,))

    @property
    def shared_bytes(self) -> int:
        """The most shared memory that one of its kernels takes."""
        width = self.out_size[1]
        forward = tile_bytes(self.rows, width, self.stride, self.depth)
        gradient = tile_bytes(self.weight_rows, width, self.stride, self.depth)
        gradient += (self.weight_rows * width + 15) * 2 * (self.block + 8)
        gradient = max(gradient, 36 * self.depth * self.block if self.depth < 32 else 0)  # its sums
        back = 0
        if self.in_channels in PLACES:
            back = tile_bytes(self.in_rows, self.width, 1, self.channels)
        return max(forward, gradient, back) + 6 * 1024  # beside the tiles


class Plan:
    """A network of layers: one at the start, then two a block.

    `fragments` are places in the weights laid end to end, with a zero behind them: first those of
    all layers as the products of a forward pass take them, then as an input gradient does.
    """

    def __init__(self, layers: tuple[Layer, ...], device: torch.device) -> None:
        self.layers = layers
        starts = list(accumulate((layer.weights for layer in layers), initial=0))
        zero, placed = starts.pop(), list(zip(layers, starts, strict=True))
        packed = [forward_fragments(layer, start, zero) for layer, start in placed]
        packed += [turned_fragments(layer, start) for layer, start in placed[1:]]
        self.fragments = torch.cat(packed).to(device)
        self.packed_sizes = [len(part) for part in packed]
        self.channels = [layer.channels for layer in layers]
        outputs = torch.tensor([layer.out_size[0] * layer.out_size[1] for layer in layers])
        self.places = outputs.double().to(device)[:, None]  # of an image

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(self._kernels())

    def _kernels(self) -> Iterator[Kernel]:
        start, *others = self.layers
        yield from (start.forward(PLAIN), start.end(None), start.weight_gradient(PLAIN))
        yield from {layer.weight_sum for layer in self.layers}
        for first, second in zip(others[::2], others[1::2], strict=True):
            yield from (first.forward(PLAIN), second.forward(RELU_NORM), second.end(first))
            yield from (first.weight_gradient(PLAIN), second.weight_gradient(RELU_NORM))
            yield from (first.input_gradient(ACTIVATION), second.input_gradient(NORMALISED))
        yield self.layers[-1].backward_start

    @property
    def fits(self) -> bool:
        return max(layer.shared_bytes for layer in self.layers) <= SHARED_BYTES


def _lanes(depth: int, channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tap, row and column of what a thread holds of a 16 × 8 factor, for all taps and factors."""
    shape = (9, depth // 16, channels // 8, 32, 4)
    tap, step, column, lane, i = torch.meshgrid(*map(torch.arange, shape), indexing="ij")
    row = step * 16 + lane % 4 * 2 + i % 2 + i // 2 * 8
    return tap.flatten(), row.flatten(), (column * 8 + lane // 4).flatten()


def forward_fragments(layer: Layer, start: int, zero: int) -> Tensor:
    """W_t: rows are input channels, columns output channels."""
    tap, row, column = _lanes(layer.depth, layer.channels)
    place = start + (column * layer.in_channels + row) * 9 + tap
    return torch.where(row < layer.in_channels, place, zero)


def turned_fragments(layer: Layer, start: int) -> Tensor:
    """W_{−t}ᵀ."""
    tap, row, column = _lanes(layer.channels, layer.in_channels)
    return start + (row * layer.in_channels + column) * 9 + 8 - tap


@cache
def plan_of(
    in_channels: int,
    blocks: tuple[tuple[int, int], ...],
    size: tuple[int, int],
    device: torch.device,
) -> Plan:
    """The plan of a network whose blocks have these channels and strides."""
    height, width = size
    layers = [Layer(in_channels, FIRST_CHANNELS, 1, height, width)]
    for channels, stride in blocks:
        before = layers[-1]
        layers.append(Layer(before.channels, channels, stride, *before.out_size))
        layers.append(Layer(channels, channels, 1, *layers[-1].out_size))
    return Plan(tuple(layers), device)

"""Forward and backward of a whole residual network, kernel by kernel.

A step reads and writes a map only where a convolution or the end of a block does; batch norm and
ReLU ride along. Kept for the backward pass are the convolutions' outputs and the ends of blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.backbones.resnet32_gpu.plan import (
    ACTIVATION,
    BLOCK_END_PROGRAMS,
    COPIES,
    NORMALISED,
    PLAIN,
    RELU_NORM,
    WEIGHT_PROGRAMS,
    Layer,
    Plan,
)
from wcdas.streams import Beside

Launch = Callable[..., None]


@dataclass(frozen=True)
class Network:
    """A network without its parameters: the plan of its layers and what runs it."""

    plan: Plan
    norms: list[nn.BatchNorm2d]  # of one momentum and ε
    launch: Launch  # runs a kernel
    beside: Beside  # where the gradients by the weights are worked out


class Pass:
    """One batch on its way; `sums` are copies of Σ y, Σ y², Σ ∂L/∂z, Σ x̂ ∂L/∂z of every layer."""

    def __init__(
        self, network: Network, images: int, gammas: Any, betas: Any, sums: Tensor, packed: Any
    ) -> None:
        self.plan, self.launch, self.images = network.plan, network.launch, images
        self.layers = network.plan.layers
        self.gammas, self.betas, self.sums, self.packed = gammas, betas, sums, packed
        self.eps = network.norms[0].eps

    def norm(self, i: int) -> tuple[Any, ...]:
        height, width = self.layers[i].out_size
        return self.sums[i], self.gammas[i], self.betas[i], self.images * height * width, self.eps

    def convolve(self, i: int, x: Tensor, before: int | None) -> Tensor:
        """y of a layer; `before` is the layer whose batch norm and ReLU x passes first."""
        layer = self.layers[i]
        y = x.new_empty(self.images, *layer.out_size, layer.channels)
        norm = self.norm(i if before is None else before)
        kernel = layer.forward(PLAIN if before is None else RELU_NORM)
        grid = (self.images * layer.out_size[0] // layer.rows, 1)
        weight = self.packed[i]
        self.launch(kernel, grid, x, x, *norm, weight, y, self.sums[i], y, *norm, y, y)
        return y

    def end_block(self, i: int, y: Tensor, start: Layer | None, x: Tensor) -> Tensor:
        """max(z + shortcut(x), 0)."""
        activation = torch.empty_like(y)
        kernel, grid = self.layers[i].end(start), (BLOCK_END_PROGRAMS, 1)
        self.launch(kernel, grid, y, *self.norm(i), x, activation, self.images)
        return activation

    def begin_backward(self, i: int, gradient: Tensor, activation: Tensor, y: Tensor) -> Tensor:
        result = torch.empty_like(y)
        kernel, grid = self.layers[i].backward_start, (264, 1)
        places = y.numel() // y.shape[3]
        norm = self.norm(i)
        self.launch(kernel, grid, gradient, activation, y, *norm, result, self.sums[i], places)
        return result

    def go_back(
        self, i: int, by_z: Tensor, y: Tensor, source: int, source_y: Tensor, *end: Tensor
    ) -> Tensor:
        """∂L/∂z of the layer `source` from that of layer i behind it.

        `end` is, where the source is a block's end, its activation and the gradient by the end of
        the shortcut that starts there.
        """
        layer = self.layers[i]
        result = torch.empty_like(source_y)
        activation, shortcut = end or (source_y, source_y)
        kernel = layer.input_gradient(ACTIVATION if end else NORMALISED)
        grid = (self.images * layer.height // layer.in_rows, 1)
        maps = result, self.sums[source], source_y
        weight, norms = self.packed[len(self.layers) + i - 1], (self.norm(i), self.norm(source))
        given = (by_z, y, *norms[0], weight, *maps, *norms[1], activation, shortcut)
        self.launch(kernel, grid, *given)
        return result

    def weigh(self, i: int, x: Tensor, before: int | None, by_z: Tensor, y: Tensor) -> Tensor:
        """∂L/∂W of a layer."""
        layer = self.layers[i]
        kernel = layer.weight_gradient(PLAIN if before is None else RELU_NORM)
        tiles = self.images * layer.out_size[0] // layer.weight_rows
        programs = min(tiles, WEIGHT_PROGRAMS[layer.channels])
        grid = (programs, layer.channels // layer.block)
        of_x = self.norm(i if before is None else before)
        partials = torch.empty(programs, layer.weights, device=x.device)
        self.launch(kernel, grid, x, *of_x, by_z, y, *self.norm(i), partials, self.images)
        result = partials.new_empty(layer.channels, layer.in_channels, 3, 3)
        self.launch(layer.weight_sum, (layer.weights // 8, 1), partials, programs, result)
        return result


def places_first(x: Tensor) -> Tensor:
    """(images, channels, height, width) as (images, height, width, channels), bfloat16."""
    return x.permute(0, 2, 3, 1).to(torch.bfloat16).contiguous()


def update_running(network: Network, sums: Tensor, images: int) -> None:
    """The running mean and variance of all batch norms, and their counts."""
    places = images * network.plan.places
    of_y = sums[:, :, :2].sum(1)
    mean = of_y[:, 0] / places
    variance = (of_y[:, 1] / places - mean.square()) * (places / (places - 1))
    for name, values in (("running_mean", mean.float()), ("running_var", variance.float())):
        new = [values[i, :channels] for i, channels in enumerate(network.plan.channels)]
        running = [cast(Tensor, getattr(norm, name)) for norm in network.norms]
        torch._foreach_lerp_(running, new, cast(float, network.norms[0].momentum))
    torch._foreach_add_([cast(Tensor, norm.num_batches_tracked) for norm in network.norms], 1)


class ResidualFunction(torch.autograd.Function):
    """`ResidualFunction.apply(network, images, *weights, *gammas, *betas)`: the last map."""

    @staticmethod
    def forward(ctx: Any, network: Network, images: Tensor, *parameters: Tensor) -> Tensor:
        plan, count = network.plan, len(network.norms)
        weights, gammas, betas = (parameters[i * count : (i + 1) * count] for i in range(3))
        flat = torch.cat([*(weight.flatten() for weight in weights), weights[0].new_zeros(1)])
        packed = flat.bfloat16().index_select(0, plan.fragments).split(plan.packed_sizes)
        sums = torch.zeros(count, COPIES, 4, 64, dtype=torch.float64, device=images.device)
        forward = Pass(network, len(images), gammas, betas, sums, packed)

        x = places_first(images)
        y = forward.convolve(0, x, None)
        a = forward.end_block(0, y, None, y)
        kept = [x, y, a]
        for i in range(1, count, 2):
            y1 = forward.convolve(i, a, None)
            y2 = forward.convolve(i + 1, y1, i)
            a = forward.end_block(i + 1, y2, plan.layers[i], a)
            kept += [y1, y2, a]
        update_running(network, sums, len(images))
        ctx.network = network
        ctx.save_for_backward(images, sums, *parameters, *packed, *kept)
        return a.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        network: Network = ctx.network
        plan, count = network.plan, len(network.norms)
        images, sums, *tensors = ctx.saved_tensors
        parameters, packed = tensors[: 3 * count], tensors[3 * count : 5 * count - 1]
        if torch.is_grad_enabled():  # derivatives of derivatives are autograd's
            return None, None, *plain_gradients(ctx, network, images, parameters, gradient)
        x, y0, a0, *kept = tensors[5 * count - 1 :]
        gammas, betas = parameters[count : 2 * count], parameters[2 * count :]
        sums = sums.clone()  # what is kept serves a second backward pass, too
        backward = Pass(network, len(images), gammas, betas, sums, packed)
        by_weights: list[Tensor | None] = [None] * count
        used = []  # beside the way back, so it must not go before the two join

        def weigh(i: int, x: Tensor, before: int | None, by_z: Tensor, y: Tensor) -> None:
            if ctx.needs_input_grad[2 + i]:
                used.append(by_z)
                with network.beside:
                    by_weights[i] = backward.weigh(i, x, before, by_z, y)

        ends = [a0, *kept[2::3]]
        by_z = backward.begin_backward(count - 1, places_first(gradient), ends[-1], kept[-2])
        for i in reversed(range(1, count, 2)):
            y1, y2 = kept[3 * (i // 2)], kept[3 * (i // 2) + 1]
            a, before = ends[i // 2], y0 if i == 1 else kept[3 * (i // 2) - 2]
            weigh(i + 1, y1, i, by_z, y2)
            by_z1 = backward.go_back(i + 1, by_z, y2, i, y1)
            weigh(i, a, None, by_z1, y1)
            by_z = backward.go_back(i, by_z1, y1, i - 1, before, a, by_z)
        weigh(0, x, None, by_z, y0)
        network.beside.join()

        by_norms = sums[:, :, 2:].sum(1).float()
        return (
            None,
            None,
            *by_weights,
            *(by_norms[i, 1, :channels] for i, channels in enumerate(plan.channels)),
            *(by_norms[i, 0, :channels] for i, channels in enumerate(plan.channels)),
        )


def plain_map(network: Network, images: Tensor, parameters: list[Tensor]) -> Tensor:
    """The same in torch's own operations; the running statistics stay as they are."""
    count = len(network.norms)

    def layer(i: int, x: Tensor, stride: int) -> Tensor:
        y = F.conv2d(x, parameters[i].bfloat16(), stride=stride, padding=1)
        gamma, beta = parameters[count + i], parameters[2 * count + i]
        return F.batch_norm(y, None, None, gamma, beta, training=True, eps=network.norms[i].eps)

    a = layer(0, images.bfloat16(), 1).relu()
    for i in range(1, count, 2):
        stride = network.plan.layers[i].stride
        z = layer(i + 1, layer(i, a, stride).relu(), 1)
        around = 2 * ((z.shape[1] - a.shape[1]) // 2,)
        a = (z + F.pad(a[:, :, ::stride, ::stride], (0, 0, 0, 0, *around))).relu()
    return a


def plain_gradients(
    ctx: Any, network: Network, images: Tensor, parameters: list[Tensor], gradient: Tensor
) -> list[Tensor | None]:
    needed = [i for i, needs in enumerate(ctx.needs_input_grad[2:]) if needs]
    a = plain_map(network, images, parameters)
    found = torch.autograd.grad(a, [parameters[i] for i in needed], gradient, create_graph=True)
    gradients: list[Tensor | None] = [None] * len(parameters)
    for i, of_parameter in zip(needed, found, strict=True):
        gradients[i] = of_parameter
    return gradients

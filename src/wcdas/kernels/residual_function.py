"""Forward and backward of a whole residual network, kernel by kernel.

A step reads and writes a map only where a convolution or the end of a block does; batch norm and
ReLU ride along. Kept for the backward pass are the convolutions' outputs and the ends of blocks.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.kernels.batch_norm import statistics
from wcdas.kernels.convolution_forward import convolution
from wcdas.kernels.input_gradient import Normalised, Source, input_gradient
from wcdas.kernels.partial_sums import sum_rows
from wcdas.kernels.residual import residual, residual_gradient
from wcdas.kernels.weight_gradient import weight_gradient


@dataclass(frozen=True)
class Plan:
    """What a network is, beside its parameters.

    Args:
        norms: its batch norms, in the order of the convolutions: one at the start, two a block.
        strides: of the blocks.
        dtype: of the maps.
    """

    norms: list[nn.BatchNorm2d]
    strides: list[int]
    dtype: torch.dtype


def packed(weights: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    """(9, input, output channels) of every weight; those of one shape are copied together."""
    shapes: dict[torch.Size, list[Tensor]] = {weight.shape: [] for weight in weights}
    for weight in weights:
        shapes[weight.shape].append(weight)
    stacks = {
        shape: iter(torch.stack(same).permute(0, 3, 4, 2, 1).to(dtype).contiguous().flatten(1, 2))
        for shape, same in shapes.items()
    }
    return [next(stacks[weight.shape]) for weight in weights]


def places_first(x: Tensor, dtype: torch.dtype) -> Tensor:
    """(images, channels, height, width) as contiguous (images, height, width, channels)."""
    return x.permute(0, 2, 3, 1).to(dtype).contiguous()


class ResidualFunction(torch.autograd.Function):
    """`ResidualFunction.apply(plan, images, *weights, *gammas, *betas)`: the last map."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, images: Tensor, *parameters: Tensor) -> Tensor:
        count = len(plan.norms)
        weights = packed(parameters[:count], plan.dtype)
        gammas, betas = parameters[count : 2 * count], parameters[2 * count :]

        def layer(i: int, x: Tensor, norm: Tensor | None, stride: int) -> tuple[Tensor, Tensor]:
            y, measured = convolution(x, norm, weights[i], stride)
            return y, statistics(measured, plan.norms[i], gammas[i], betas[i])

        a = places_first(images, plan.dtype)
        kept = [a]
        y, norm = layer(0, a, None, 1)
        a = residual(y, norm)
        kept += [y, norm, a]
        for block, stride in enumerate(plan.strides):
            y1, norm1 = layer(2 * block + 1, a, None, stride)
            y2, norm2 = layer(2 * block + 2, y1, norm1, 1)
            a = residual(y2, norm2, a, stride)
            kept += [y1, norm1, y2, norm2, a]
        torch._foreach_add_([cast(Tensor, norm.num_batches_tracked) for norm in plan.norms], 1)
        ctx.plan = plan
        ctx.save_for_backward(images, *parameters, *weights, *kept)
        return a.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        count = len(plan.norms)
        images, *tensors = ctx.saved_tensors
        parameters, weights = tensors[: 3 * count], tensors[3 * count : 4 * count]
        if torch.is_grad_enabled():  # derivatives of derivatives are autograd's
            return None, *plain_gradients(ctx, plan, images, parameters, gradient)
        x, y0, norm0, *kept = tensors[4 * count :]
        by_weight: list[Tensor | None] = [None] * count
        by_gamma: list[Tensor | None] = [None] * count
        by_beta: list[Tensor | None] = [None] * count

        def behind(i: int, by_z: Tensor, partials: Tensor, y: Tensor, norm: Tensor) -> Normalised:
            sums = sum_rows(partials)
            by_beta[i], by_gamma[i] = sums.to(parameters[count + i].dtype)
            return Normalised(by_z, y, norm, sums)

        def weigh(i: int, x: Tensor, norm: Tensor | None, output: Normalised, stride: int) -> None:
            if ctx.needs_input_grad[2 + i]:
                by_weight[i] = weight_gradient(x, norm, output, stride).to(parameters[i].dtype)

        # Of every block its start a, and its two convolutions; the last of `kept` is the end.
        starts, layers = kept[::5], [kept[i + 1 : i + 5] for i in range(0, len(kept) - 1, 5)]
        sources = [(y0, norm0), *((y2, norm2) for _, _, y2, norm2 in layers)]
        by_z, partials = residual_gradient(
            places_first(gradient, plan.dtype), starts[-1], *sources[-1]
        )
        for block in reversed(range(len(layers))):
            a, stride = starts[block], plan.strides[block]
            y1, norm1, y2, norm2 = layers[block]
            first, second = 2 * block + 1, 2 * block + 2
            output = behind(second, by_z, partials, y2, norm2)
            size = (y2.shape[1], y2.shape[2])
            weigh(second, y1, norm1, output, 1)
            by_z1, partials = input_gradient(output, weights[second], 1, size, Source(y1, norm1))
            output = behind(first, by_z1, partials, y1, norm1)
            size = (a.shape[1], a.shape[2])
            weigh(first, a, None, output, stride)
            by_z, partials = input_gradient(
                output, weights[first], stride, size, Source(*sources[block], a), by_z
            )
        output = behind(0, by_z, partials, y0, norm0)
        weigh(0, x, None, output, 1)
        by_images = None
        if ctx.needs_input_grad[1]:
            by_x, _ = input_gradient(output, weights[0], 1, (x.shape[1], x.shape[2]))
            by_images = by_x.permute(0, 3, 1, 2).to(images.dtype)
        return None, by_images, *by_weight, *by_gamma, *by_beta


def plain_map(plan: Plan, images: Tensor, parameters: list[Tensor]) -> Tensor:
    """The same in torch's own operations; the running statistics stay as they are."""
    count = len(plan.norms)

    def layer(i: int, x: Tensor, stride: int) -> Tensor:
        y = F.conv2d(x, parameters[i].to(plan.dtype), stride=stride, padding=1)
        gamma, beta = parameters[count + i], parameters[2 * count + i]
        return F.batch_norm(y, None, None, gamma, beta, training=True, eps=plan.norms[i].eps)

    a = layer(0, images.to(plan.dtype), 1).relu()
    for block, stride in enumerate(plan.strides):
        z = layer(2 * block + 2, layer(2 * block + 1, a, stride).relu(), 1)
        around = 2 * ((z.shape[1] - a.shape[1]) // 2,)
        a = (z + F.pad(a[:, :, ::stride, ::stride], (0, 0, 0, 0, *around))).relu()
    return a


def plain_gradients(
    ctx: Any, plan: Plan, images: Tensor, parameters: list[Tensor], gradient: Tensor
) -> list[Tensor | None]:
    inputs = [images, *parameters]
    needed = [i for i, needs in enumerate(ctx.needs_input_grad[1:]) if needs]
    a = plain_map(plan, images, parameters)
    found = torch.autograd.grad(a, [inputs[i] for i in needed], gradient, create_graph=True)
    gradients: list[Tensor | None] = [None] * len(inputs)
    for i, of_input in zip(needed, found, strict=True):
        gradients[i] = of_input
    return gradients

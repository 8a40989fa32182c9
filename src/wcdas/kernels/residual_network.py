"""A ResNet-32 with its own parameters and buffers, run through the kernels where they can.

    fuse(network)   # from now on network(images) does so while it trains on a GPU

Everywhere else, in evaluation, on a CPU, in other shapes or types, under `torch.func` and
`torch.compile`, the network runs as it is written. Derivatives of derivatives are autograd's.
"""

from collections.abc import Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from wcdas.kernels.launches import FORWARD
from wcdas.kernels.residual_function import Plan, ResidualFunction
from wcdas.kernels.triton_language import AVAILABLE, INTERPRETED


def fuse(network: Any) -> None:
    """Let `network.forward_map` run through the kernels; parameters and state_dict stay.

    Args:
        network: conv1, bn1, stage1, stage2 and stage3, the stages sequences of blocks with conv1,
            bn1, conv2, bn2, stride and padding, as `wcdas.backbones.ResNet32` has them.
    """
    network.forward_map = MethodType(forward_map, network)


def forward_map(network: Any, images: Tensor) -> Tensor:
    """The feature map before pooling, of a network that `fuse` takes."""
    dtype = map_dtype(images)
    if not can_run(network, images):
        return type(network).forward_map(network, images)
    norms = [norm for _, norm in layers(network)]
    plan = Plan(norms, [block.stride for block in blocks(network)], dtype)
    weights = [convolution.weight for convolution, _ in layers(network)]
    parameters = [*weights, *(norm.weight for norm in norms), *(norm.bias for norm in norms)]
    return ResidualFunction.apply(plan, images, *parameters)


def map_dtype(images: Tensor) -> torch.dtype:
    device = images.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return images.dtype


def can_run(network: Any, images: Tensor) -> bool:
    return (
        AVAILABLE
        and (INTERPRETED or on_a_gpu_that_can(images))
        and map_dtype(images) in (torch.float32, torch.bfloat16)
        and images.ndim == 4
        and len(images) > 1
        and images.numel() // images.shape[1] * max(FORWARD) < 2**31
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
        and all(fits(*layer, images) for layer in layers(network))
    )


def on_a_gpu_that_can(images: Tensor) -> bool:
    """Triton launches on the current GPU; one older than Ampere multiplies no bfloat16."""
    return (
        images.is_cuda
        and images.get_device() == torch.cuda.current_device()
        and torch.cuda.get_device_capability(images.device) >= (8, 0)
    )


def fits(convolution: nn.Conv2d, norm: nn.BatchNorm2d, images: Tensor) -> bool:
    """Whether there is a kernel for these two."""
    autocast = torch.is_autocast_enabled(images.device.type)
    return (
        type(convolution) is nn.Conv2d
        and type(norm) is nn.BatchNorm2d
        and convolution.kernel_size == (3, 3)
        and convolution.stride in ((1, 1), (2, 2))
        and convolution.padding == convolution.dilation == (1, 1)
        and convolution.padding_mode == "zeros"
        and convolution.groups == 1
        and convolution.bias is None
        and convolution.out_channels in FORWARD
        and convolution.in_channels <= convolution.out_channels
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and convolution.weight.device == images.device
        and (autocast or convolution.weight.dtype == images.dtype)
    )


def blocks(network: Any) -> Iterator[Any]:
    for stage in (network.stage1, network.stage2, network.stage3):
        yield from stage


def layers(network: Any) -> Iterator[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Every convolution with the batch norm behind it."""
    yield network.conv1, network.bn1
    for block in blocks(network):
        yield block.conv1, block.bn1
        yield block.conv2, block.bn2

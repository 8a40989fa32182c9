"""A ResNet-32 with its own parameters and buffers, run through the kernels where they can.

    fuse(network)   # from now on network(images) does so while it trains in bfloat16 on a GPU

Everywhere else, in evaluation, on a CPU, in other shapes or types, where bit-identical runs are
asked for, under `torch.func` and `torch.compile`, the network runs as it is written. Derivatives of
derivatives are autograd's.
"""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from wcdas.backbones.resnet32_gpu.function import Network, ResidualFunction
from wcdas.backbones.resnet32_gpu.kernel import kernels_on
from wcdas.backbones.resnet32_gpu.plan import FIRST_CHANNELS, PLACES, Plan, plan_of
from wcdas.streams import Beside

# What a PyTorch without a compiler raises, or one whose way to it is another.
UNFIT = (AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError)


def fuse(network: Any) -> None:
    """Let `network.forward_map` run through the kernels; parameters and state_dict stay.

    Args:
        network: conv1, bn1, stage1, stage2 and stage3, the stages sequences of blocks with conv1,
            bn1, conv2, bn2, stride and padding, as `wcdas.backbones.ResNet32` has them.
    """
    network.forward_map = MethodType(forward_map, network)


def forward_map(network: Any, images: Tensor) -> Tensor:
    """The feature map before pooling, of a network that `fuse` takes."""
    plan = plan_for(network, images) if can_run(network, images) else None
    if plan is None or not plan.fits:
        return type(network).forward_map(network, images)
    try:
        launch = kernels_on(images.device, plan.kernels).launch
    except UNFIT as error:
        del network.forward_map
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        warnings.warn(
            f"no kernels ({reason}); the network runs as written", RuntimeWarning, stacklevel=2
        )
        return network.forward_map(images)
    norms, beside = [norm for _, norm in layers(network)], Beside("weights", images.device)
    return run(Network(plan, norms, launch, beside), network, images)


def compile_ahead(network: Any, images: Tensor) -> None:
    """Compile the kernels for images like these, where there are some; `forward_map` says why not
    otherwise."""
    if can_run(network, images) and (plan := plan_for(network, images)).fits:
        with suppress(*UNFIT):
            kernels_on(images.device, plan.kernels)


def run(fused: Network, network: Any, images: Tensor) -> Tensor:
    weights = [convolution.weight for convolution, _ in layers(network)]
    norms = fused.norms
    parameters = [*weights, *(norm.weight for norm in norms), *(norm.bias for norm in norms)]
    return ResidualFunction.apply(fused, images, *parameters)


def plan_for(network: Any, images: Tensor) -> Plan:
    structure = tuple((block.conv1.out_channels, block.stride) for block in blocks(network))
    size = (images.shape[2], images.shape[3])
    return plan_of(network.conv1.in_channels, structure, size, images.device)


def can_run(network: Any, images: Tensor) -> bool:
    return (
        images.is_cuda
        and torch.version.hip is None
        and torch.cuda.get_device_capability(images.device) >= (8, 0)
        and map_dtype(images) == torch.bfloat16
        and images.ndim == 4
        and len(images) > 1
        and not images.requires_grad
        and not torch.are_deterministic_algorithms_enabled()
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not any(has_hooks(module) for module in network.modules())
        and network.conv1.out_channels == FIRST_CHANNELS
        and all(fits(*layer, images) for layer in layers(network))
        and len({(norm.momentum, norm.eps) for _, norm in layers(network)}) == 1
    )


def has_hooks(module: nn.Module) -> bool:
    forward = module._forward_hooks or module._forward_pre_hooks
    return bool(forward or module._backward_hooks or module._backward_pre_hooks)


def map_dtype(images: Tensor) -> torch.dtype:
    device = images.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return images.dtype


def fits(convolution: nn.Conv2d, norm: nn.BatchNorm2d, images: Tensor) -> bool:
    """Tell whether there is a kernel for these two."""
    return (
        type(convolution) is nn.Conv2d
        and type(norm) is nn.BatchNorm2d
        and convolution.kernel_size == (3, 3)
        and convolution.stride in ((1, 1), (2, 2))
        and convolution.padding == convolution.dilation == (1, 1)
        and convolution.padding_mode == "zeros"
        and convolution.groups == 1
        and convolution.bias is None
        and convolution.out_channels in PLACES
        and (convolution.in_channels in PLACES or convolution.in_channels <= 4)
        and convolution.in_channels <= convolution.out_channels
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and convolution.weight.device == images.device
        and convolution.weight.dtype == norm.weight.dtype == torch.float32
        and convolution.weight.is_contiguous()
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

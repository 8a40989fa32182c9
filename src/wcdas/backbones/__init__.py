"""Backbones: images → features."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path

import torch
from torch import nn

from wcdas.backbones.adapters import add_adapters, let_learn, merge_adapters
from wcdas.backbones.base import Backbone, Identity
from wcdas.backbones.necks import create_neck, list_necks
from wcdas.backbones.pretrained import PACKAGES, WeightsUnavailable, find_pretrained, packaged
from wcdas.backbones.resnets import ResNet10, ResNet32
from wcdas.backbones.timm_backbone import ALIASES, TimmBackbone, no_drop_path
from wcdas.backbones.weights import load_weights, weights_file
from wcdas.checks import check_from_zero
from wcdas.errors import InputError

BACKBONES: dict[str, Callable[[int], Backbone]] = {
    "resnet32": ResNet32,
    # The same with another number of blocks a stage; the number of layers is 6 · blocks + 2.
    "resnet8": partial(ResNet32, blocks=1),
    "resnet20": partial(ResNet32, blocks=3),
    "resnet56": partial(ResNet32, blocks=9),
    "resnet10": ResNet10,
    "identity": Identity,
}
# A few of timm's; `create_backbone` takes every name of `timm.list_models()`.
COMMON_TIMM = [
    "resnet18",
    "resnet50",
    "resnext50",
    "resnet101",
    "resnet152",
    "efficientnet_b0",
    *PACKAGES,
    "convnext_tiny",
    "vit_small_patch16_224",
    "vit_base_patch16_224",
    "swin_tiny_patch4_window7_224",
]


def create_backbone(
    name: str,
    *,
    channels: int = 3,
    input_size: int = 32,
    weights: str | Path | None = None,
    drop_path: float = 0.0,
    lora: int = 0,
) -> Backbone:
    """Build a backbone by name: one of `list_backbones()` or any model of timm.

    Args:
        name: `resnet32` (also with 8, 20 or 56 layers), `resnet10`, `identity` (precomputed
            features) or a name of timm.
        channels: of the images; for `identity` the length of a feature vector.
        input_size: side of the images in pixels; only models of a fixed size look at it.
        weights: None (from scratch), "pretrained" (timm's, from the cache of the Hub, an installed
            package or the Hub) or a `.safetensors` or `.pth` file of the same backbone; a neck or a
            classifier in it is left out. `weights_from` of the backbone says where they came from.
        drop_path: rate of stochastic depth, at the last layer, for networks of timm that have it.
        lora: rank of adapters, which then learn in place of the pretrained weights; 0 is none.

    Raises:
        WeightsUnavailable: pretrained weights are neither in the cache, nor in a package, nor at a
            Hub that answers within 5 s.

    Example:
        >>> backbone = create_backbone("resnet32", channels=1)
        >>> backbone.num_features
        64
    """
    if channels < 1 or (input_size < 1 and name != "identity"):
        raise InputError(
            f"backbone {name!r} got {channels} channels of {input_size} pixels; "
            "expected at least 1 of each"
        )
    check_from_zero("drop_path", drop_path, below=1)
    if name in BACKBONES:
        backbone = _own(name, channels, weights, drop_path)
    else:
        check_timm_name(name)
        backbone = TimmBackbone(name, channels, input_size, weights, drop_path)
    if lora:
        add_adapters(backbone, lora, torch.zeros(1, channels, input_size, input_size))
    return backbone


def _own(name: str, channels: int, weights: str | Path | None, drop_path: float) -> Backbone:
    if drop_path:
        raise no_drop_path(name, drop_path)
    backbone = BACKBONES[name](channels)
    if weights == "pretrained":
        raise _no_pretrained(name)
    if weights is not None:
        found = weights_file(Path(weights))
        load_weights(backbone, found)
        backbone.weights_from = found.origin
    return backbone


def check_pretrained(name: str) -> None:
    """Raise `WeightsUnavailable` where pretrained weights of a backbone cannot be had; to build it
    with them takes longer."""
    import timm

    if name in BACKBONES:
        raise _no_pretrained(name)
    check_timm_name(name)
    name = ALIASES.get(name, name)
    find_pretrained(name, timm.get_pretrained_cfg(name))


def _no_pretrained(name: str) -> WeightsUnavailable:
    return WeightsUnavailable(
        f"there are no pretrained weights of {name!r}; train from scratch, give a file with "
        "backbone.weights or choose a backbone of timm"
    )


def usual_size(name: str) -> int:
    """Return the size in pixels that a backbone of timm is made for."""
    import timm

    config = timm.get_pretrained_cfg(ALIASES.get(name, name))
    return config.input_size[-1] if config else 224


def demanded_size(name: str) -> int | None:
    """Return the size in pixels that a backbone is made for; None where it takes any."""
    import timm

    config = timm.get_pretrained_cfg(ALIASES.get(name, name)) if name not in BACKBONES else None
    return usual_size(name) if config and config.fixed_input_size else None


def can_be_cut(name: str, size: int) -> bool:
    """Whether a backbone can be cut into experts."""
    with torch.device("meta"):
        try:
            create_backbone(name, input_size=size).split()
        except InputError:
            return False
    return True


def takes(name: str, built_for: int, size: int) -> bool:
    """Whether a backbone that is built for images of one size takes those of another."""
    with torch.device("meta"), torch.no_grad():
        backbone = create_backbone(name, input_size=built_for).eval()
        try:
            backbone(torch.zeros(1, 3, size, size))
        except Exception:  # networks stumble anywhere over other sizes
            return False
    return True


@cache
def has_batch_norm(name: str) -> bool:
    """Whether a backbone normalises over the batch, as convolutional networks mostly do."""
    with torch.device("meta"):
        try:
            backbone = create_backbone(name, input_size=demanded_size(name) or 224)
        except InputError:
            return False
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in backbone.modules())


def check_timm_name(name: str) -> None:
    import timm

    # timm also builds from addresses ("hf-hub:…", "local-dir:…"), which are not names.
    known = [*BACKBONES, *ALIASES, *timm.list_models(include_tags="." in name)]
    if name in known:
        return
    near = get_close_matches(name.lower().replace("-", "_"), known, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see `wcdas list backbones`"
    raise InputError(f"unknown backbone {name!r}; {hint}")


def list_backbones() -> list[str]:
    """The backbones of this package and the common ones of timm, which has many more."""
    return [*BACKBONES, *COMMON_TIMM]


__all__ = [
    "Backbone",
    "WeightsUnavailable",
    "create_backbone",
    "create_neck",
    "let_learn",
    "list_backbones",
    "list_necks",
    "merge_adapters",
    "packaged",
]

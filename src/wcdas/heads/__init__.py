"""Heads: features → logits. Put one where `nn.Linear` was."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from wcdas.checks import create
from wcdas.heads.angular import AngularHead, CosineHead
from wcdas.heads.base import Head
from wcdas.heads.gaussian_affinity import GaussianAffinityHead
from wcdas.heads.linear import LinearHead, LWSHead, TauNormHead
from wcdas.heads.margins import AMSoftmaxHead, ArcFaceHead, LSoftmaxHead, SphereFaceHead
from wcdas.heads.sharded_wcdas import ShardedWCDASHead
from wcdas.heads.t_vmf import TvMFHead
from wcdas.heads.wcdas import WCDASHead
from wcdas.heads.wndas import WNDASHead

HEADS: dict[str, type[Head]] = {
    "linear": LinearHead,
    "cosine": CosineHead,
    "wcdas": WCDASHead,
    "wndas": WNDASHead,
    "t-vmf": TvMFHead,
    "l-softmax": LSoftmaxHead,
    "am-softmax": AMSoftmaxHead,
    "arcface": ArcFaceHead,
    "sphereface": SphereFaceHead,
    "gaussian-affinity": GaussianAffinityHead,
    "lws": LWSHead,
    "tau-norm": TauNormHead,
}


def create_head(
    name: str,
    in_features: int,
    num_classes: int,
    class_counts: Sequence[int] | Tensor | None = None,
    **options: Any,
) -> Head:
    """Build a head by name; `list_heads()` has the names, each class its options.

    Example:
        >>> head = create_head("wcdas", in_features=64, num_classes=100, init=-1.0)
    """
    return create(
        "head",
        HEADS,
        name,
        options,
        in_features=in_features,
        num_classes=num_classes,
        class_counts=class_counts,
    )


def list_heads() -> list[str]:
    """The names `create_head` knows."""
    return list(HEADS)


__all__ = [
    "AMSoftmaxHead",
    "AngularHead",
    "ArcFaceHead",
    "CosineHead",
    "GaussianAffinityHead",
    "Head",
    "LSoftmaxHead",
    "LWSHead",
    "LinearHead",
    "ShardedWCDASHead",
    "SphereFaceHead",
    "TauNormHead",
    "TvMFHead",
    "WCDASHead",
    "WNDASHead",
    "create_head",
    "list_heads",
]

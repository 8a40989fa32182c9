"""One backbone with several ends."""

from typing import Any

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone
from wcdas.errors import InputError

MOST_EXPERTS = 32


class Experts(Backbone):
    """Shared early layers and, for each expert, later layers and a neck of its own.

    The features of the experts stand side by side, (B, experts·d).

    Args:
        backbone: one that can be cut; its early layers become the shared ones.
        count: of experts.
        width: of an expert's layers, as a share of the channels of the backbone.

    Example:
        >>> from wcdas.backbones import create_backbone
        >>> Experts(create_backbone("resnet32"), count=3, width=0.75).num_features
        144
    """

    branches: Any

    def __init__(self, backbone: Backbone, count: int = 3, width: float = 1.0) -> None:
        super().__init__()
        if not 2 <= count <= MOST_EXPERTS:
            raise InputError(f"options.experts is {count}; expected 2 to {MOST_EXPERTS}")
        if not 0 < width <= 1:
            raise InputError(f"options.width is {width}; expected above 0 and at most 1")
        self.trunk, branch = backbone.split(width)
        branches = [branch().attach_neck(*backbone.neck_settings) for _ in range(count)]
        self.channels = [part.pooled_features for part in branches]
        self.sizes = [part.num_features for part in branches]
        self.branches = nn.ModuleList(branches)
        self.num_features = sum(self.sizes)
        self.mean, self.std = backbone.mean, backbone.std

    def forward_map(self, x: Tensor) -> Tensor:
        shared = self.trunk(x)
        return torch.cat([branch.forward_map(shared) for branch in self.branches], dim=1)

    def pool(self, feature_map: Tensor) -> Tensor:
        """The features of the experts, each behind its neck."""
        maps = zip(self.branches, feature_map.split(self.channels, dim=1), strict=True)
        return torch.cat([branch.neck(branch.pool(part)) for branch, part in maps], dim=1)

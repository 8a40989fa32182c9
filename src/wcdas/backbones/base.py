"""The base of all backbones, the one that does nothing, those behind a frozen one and with several
ends."""

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any, Self

import torch
from torch import Tensor, nn

from wcdas.backbones.necks import Neck, create_neck
from wcdas.errors import InputError

MOST_EXPERTS = 32


class Backbone(nn.Module):
    """Images (B, channels, H, W) → features (B, num_features).

    `forward_map` gives the feature map before pooling, `pool` turns it into a vector, and the neck,
    if one is attached, that into the features. `mean` and `std` are the normalisation, one number a
    channel, that pretrained weights expect; None where the data decides. `weights_from` says in
    words where the weights came from, and is empty from scratch.
    """

    num_features: int
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    weights_from: str = ""
    neck_settings: tuple[str, int] = ("none", 0)

    def __init__(self) -> None:
        super().__init__()
        self.neck: nn.Module = nn.Identity()

    def attach_neck(self, name: str, features: int = 0) -> Self:
        """Let a neck follow the pooling; `num_features` is then the length of what it gives.

        Args:
            name: one of `list_necks()`.
            features: length of what comes out of a linear neck; 0 is as long as what goes in.
        """
        neck = create_neck(name, self.pooled_features, features)
        self.neck, self.neck_settings = neck, (name, features)
        self.num_features = neck.out_features
        return self

    @property
    def pretrained(self) -> bool:
        """Whether the weights have learnt already."""
        return bool(self.weights_from)

    @property
    def pooled_features(self) -> int:
        """The length of what `pool` gives."""
        return self.neck.in_features if isinstance(self.neck, Neck) else self.num_features

    def forward_map(self, x: Tensor) -> Tensor:
        """The feature map before it is pooled, (N, d, height, width)."""
        raise NotImplementedError

    def pool(self, feature_map: Tensor) -> Tensor:
        """The mean over the places of the map."""
        return feature_map.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.neck(self.pool(self.forward_map(x)))

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """What is learnt, but for a neck, layer by layer from the input on.

        A convolution and the two vectors of its batch norm are a layer.
        """
        named = self.named_parameters()
        return in_threes([p for name, p in named if not name.startswith("neck.")])

    def split(self, width: float = 1.0) -> tuple[nn.Module, "Callable[[], Backbone]"]:
        """The early layers that experts share, and what makes the later layers of one expert.

        They start from random numbers, different for every expert; of a pretrained backbone from
        its weights.

        Args:
            width: of an expert's layers, as a share of the channels here.
        """
        name = getattr(self, "name", type(self).__name__)
        raise InputError(
            f"the backbone {name} cannot be cut into experts; expected resnet32, "
            "resnet10, a ResNet or ResNeXt of timm such as resnet50, or identity"
        )


def in_threes(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    return [list(parameters[i : i + 3]) for i in range(0, len(parameters), 3)]


class Branch(Backbone):
    """The later layers of a backbone: a feature map → features."""

    def __init__(self, layers: nn.Module, num_features: int) -> None:
        super().__init__()
        self.layers = layers
        self.num_features = num_features

    def forward_map(self, x: Tensor) -> Tensor:
        return self.layers(x)

    @torch.no_grad()
    def started_from(self, source: nn.Module | None) -> Self:
        """Take the weights of the same layers, narrower ones those of the first channels."""
        given = {} if source is None else source.state_dict()
        for name, own in self.layers.state_dict().items():
            if name in given:
                own.copy_(given[name][tuple(slice(length) for length in own.shape)])
        return self


class Identity(Backbone):
    """Hands precomputed feature vectors (B, num_features) on as they are.

    Example:
        >>> import torch
        >>> Identity(channels=512)(torch.ones(4, 512)).shape
        torch.Size([4, 512])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.num_features = channels

    def forward_map(self, x: Tensor) -> Tensor:
        return x

    def pool(self, feature_map: Tensor) -> Tensor:
        return feature_map

    def split(self, width: float = 1.0) -> tuple[nn.Module, Callable[[], Backbone]]:
        """There are no layers: experts on features differ by their heads alone."""
        return nn.Identity(), lambda: Identity(self.pooled_features)


class FrozenBackbone(Backbone):
    """A frozen network, and what was trained on its features: a neck, or the necks of experts."""

    def __init__(self, frozen: Backbone, after: Backbone) -> None:
        super().__init__()
        self.frozen, self.after = frozen.requires_grad_(False), after
        self.num_features = after.num_features
        self.mean, self.std, self.weights_from = frozen.mean, frozen.std, frozen.weights_from

    def forward_map(self, x: Tensor) -> Tensor:
        """The features of the frozen network, (N, d)."""
        return self.frozen(x)

    def pool(self, feature_map: Tensor) -> Tensor:
        return self.after(feature_map)


class Experts(Backbone):
    """Shared early layers and, for each expert, later layers and a neck of its own.

    The features of the experts stand side by side, (B, experts·d). The early layers of `backbone`,
    one that can be cut, become the shared ones; an expert's layers have the share `width` of its
    channels.

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
        self.weights_from = backbone.weights_from

    def forward_map(self, x: Tensor) -> Tensor:
        shared = self.trunk(x)
        return torch.cat([branch.forward_map(shared) for branch in self.branches], dim=1)

    def pool(self, feature_map: Tensor) -> Tensor:
        """The features of the experts, each behind its neck."""
        maps = zip(self.branches, feature_map.split(self.channels, dim=1), strict=True)
        return torch.cat([branch.neck(branch.pool(part)) for branch, part in maps], dim=1)

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """The shared ones, then those of all experts side by side."""
        shared = in_threes(list(self.trunk.parameters()))
        own = zip_longest(*(branch.parameters_by_layer() for branch in self.branches), fillvalue=[])
        return [*shared, *(list(chain.from_iterable(same)) for same in own)]

"""Any model of timm as a backbone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone, Branch
from wcdas.backbones.pretrained import find_pretrained
from wcdas.backbones.weights import (
    CLASSIFIERS,
    Weights,
    load_weights,
    weights_file,
    without_classifier,
)
from wcdas.errors import InputError, first_line

ALIASES = {"resnext50": "resnext50_32x4d"}


class TimmBackbone(Backbone):
    """A timm model without its classifier; the arguments are those of `create_backbone`.

    An image of `input_size` is tried, and pretrained filters of three channels are adapted.
    """

    network: Any
    lora: int = 0  # rank of the adapters, where there are any

    def __init__(
        self,
        name: str,
        channels: int = 3,
        input_size: int = 224,
        weights: str | Path | None = None,
        drop_path: float = 0.0,
    ) -> None:
        import timm
        from timm.data.config import resolve_model_data_config

        super().__init__()
        self.name, self.drop_path = ALIASES.get(name, name), drop_path
        config: Any = timm.get_pretrained_cfg(self.name)
        options: dict[str, Any] = {"in_chans": channels}
        if config and config.fixed_input_size:
            options["img_size"] = input_size
        if drop_path:
            options["drop_path_rate"] = drop_path
        try:
            self.network = timm.create_model(self.name, num_classes=0, **options).eval()
            features = self._tried(channels, input_size)
        except (AssertionError, ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            if "drop_path_rate" in str(error):
                raise no_drop_path(self.name, drop_path) from None
            made_for = config.input_size[-1] if config else 224
            raise InputError(
                f"backbone {self.name!r} does not take {channels} channels of {input_size} pixels: "
                f"{first_line(error)}; choose another size, such as the {made_for} it is made "
                "for, or another backbone"
            ) from error
        if drop_path and not drops_paths(self.network):
            raise no_drop_path(self.name, drop_path)
        if features.dim() != 2:
            raise InputError(
                f"backbone {self.name!r} gives {tuple(features.shape[1:])} numbers for an image; "
                "expected a network whose features are a vector"
            )
        self.num_features = features.shape[1]
        if weights is not None:
            own = weights != "pretrained"
            found = weights_file(Path(weights)) if own else find_pretrained(self.name, config)
            self._load(found, own, options)
            self.weights_from = found.origin
            normal = resolve_model_data_config(self.network)
            self.mean = per_channel(normal["mean"], channels)
            self.std = per_channel(normal["std"], channels)
        self.network.train()

    @torch.no_grad()
    def _tried(self, channels: int, size: int) -> Tensor:
        """The features of an image of this size."""
        return self.pool(self.forward_map(torch.zeros(1, channels, size, size)))

    def _load(self, found: Weights, own: bool, options: dict[str, Any]) -> None:
        """Take weights as they are, or as timm converts them: other names, another size."""
        import timm

        config = self.network.pretrained_cfg
        classifiers = names(config.get("classifier")) or CLASSIFIERS
        bare = self.network.state_dict()
        state = adapted(found.state, names(config.get("first_conv")), options["in_chans"])

        def convert() -> dict[str, Tensor]:
            overlay: dict[str, Any] = {"state_dict": found.state}
            classes: dict[str, Any] = {}
            if own:  # it has any classifier, or none; timm expects one
                classes = {"num_classes": 1}
                whole = timm.create_model(self.name, **options, **classes).state_dict()
                kept = without_classifier(state, bare, classifiers)
                kept |= {name: tensor for name, tensor in whole.items() if name not in bare}
                overlay = {"state_dict": kept, "first_conv": None, "classifier": None}
            network = timm.create_model(
                self.name, pretrained=True, pretrained_cfg_overlay=overlay, **options, **classes
            )
            return dict(network.state_dict())

        size, remedy = config["input_size"][-1], found.remedy
        if options.get("img_size", size) != size:
            remedy = f"choose input_size={size}, or {remedy}"
        weights = found._replace(state=state, remedy=remedy)
        load_weights(self.network, weights, classifiers, convert)

    def train(self, mode: bool = True) -> Self:
        """Beside adapters the network is frozen, its batch norm too."""
        super().train(mode)
        if self.lora:
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def forward_map(self, x: Tensor) -> Tensor:
        return self.network.forward_features(x)

    def pool(self, feature_map: Tensor) -> Tensor:
        return self.network.forward_head(feature_map, pre_logits=True)

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """Layers as timm groups them."""
        from timm.models import group_parameters

        matcher = self.network.group_matcher(coarse=False)
        depths = group_parameters(self.network, matcher, reverse=True)
        named = dict(self.network.named_parameters())
        return [
            [p for name, p in named.items() if depths[name] == depth]
            for depth in sorted({depths[name] for name in named})
        ]

    def split(self, width: float = 1.0) -> tuple[nn.Module, Callable[[], Backbone]]:
        """The first two stages of a ResNet are shared, an expert has the third and the fourth."""
        import timm
        from timm.models.resnet import ResNet

        net: Any = self.network
        if not isinstance(self.network, ResNet):
            return super().split(width)
        trunk = nn.Sequential(net.conv1, net.bn1, net.act1, net.maxpool, net.layer1, net.layer2)
        own = nn.Sequential(net.layer3, net.layer4)
        channels = (64, 128, *(max(1, round(width * c)) for c in (256, 512)))

        def branch() -> Backbone:
            fresh: Any = timm.create_model(
                self.name, num_classes=0, channels=channels, drop_path_rate=self.drop_path
            )
            layers = nn.Sequential(fresh.layer3, fresh.layer4)
            source = own if self.pretrained else None
            return Branch(layers, fresh.num_features).started_from(source)

        return trunk, branch


def no_drop_path(name: str, drop_path: float) -> InputError:
    return InputError(
        f"backbone.drop_path is {drop_path:g}, but {name} has no paths to drop; leave it out, or "
        "choose another backbone"
    )


def drops_paths(network: nn.Module) -> bool:
    """Some networks take a rate and do nothing with it."""
    from timm.layers.drop import DropPath

    return any(isinstance(part, DropPath) and part.drop_prob > 0 for part in network.modules())


def adapted(
    state: dict[str, Tensor], first_layers: tuple[str, ...], channels: int
) -> dict[str, Tensor]:
    """The weights for images of `channels`, where those given are for three."""
    from timm.models import adapt_input_conv

    for name in (f"{layer}.weight" for layer in first_layers):
        if name in state and state[name].shape[1] == 3 != channels:
            state = state | {name: adapt_input_conv(channels, state[name])}
    return state


def names(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """RGB values for images of another channel count: their mean, for every channel."""
    return tuple(values) if len(values) == channels else (sum(values) / len(values),) * channels

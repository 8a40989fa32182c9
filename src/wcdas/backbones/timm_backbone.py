"""Any model of timm as a backbone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone, Branch
from wcdas.backbones.weights import CLASSIFIERS, load_weights, pretrained_file, unavailable
from wcdas.errors import InputError, first_line

ALIASES = {"resnext50": "resnext50_32x4d"}


class TimmBackbone(Backbone):
    """A timm model without its classifier; the arguments are those of `create_backbone`.

    An image of `input_size` is tried, and pretrained filters of three channels are adapted.
    """

    network: Any

    def __init__(
        self, name: str, channels: int = 3, input_size: int = 224, weights: str | Path | None = None
    ) -> None:
        import timm
        from timm.data.config import resolve_model_data_config

        super().__init__()
        name = ALIASES.get(name, name)
        config: Any = timm.get_pretrained_cfg(name)
        options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
        if config and config.fixed_input_size:
            options["img_size"] = input_size
        if weights == "pretrained":
            if not config or not config.has_weights:
                raise unavailable(name, "timm has none for this model")
            # timm would ask the Hub again, with retries; a file it takes as it is.
            options["pretrained_cfg_overlay"] = {
                "file": pretrained_file(name, config),
                "custom_load": config.custom_load == "hf",
            }
        try:
            network: Any = timm.create_model(name, pretrained=weights == "pretrained", **options)
            with torch.no_grad():
                features = network.eval()(torch.zeros(1, channels, input_size, input_size))
        except (AssertionError, ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"backbone {name!r} does not take {channels} channels of {input_size} pixels: "
                f"{first_line(error)}; choose another size or backbone"
            ) from error
        if weights is not None and weights != "pretrained":
            load_file(network, Path(weights), channels)
        self.name, self.pretrained = name, weights is not None
        self.network = network.train()
        self.num_features = features.shape[1]
        if weights is not None:
            normal = resolve_model_data_config(network)
            self.mean = per_channel(normal["mean"], channels)
            self.std = per_channel(normal["std"], channels)

    def forward_map(self, x: Tensor) -> Tensor:
        return self.network.forward_features(x)

    def pool(self, feature_map: Tensor) -> Tensor:
        return self.network.forward_head(feature_map, pre_logits=True)

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
            fresh: Any = timm.create_model(self.name, num_classes=0, channels=channels)
            layers = nn.Sequential(fresh.layer3, fresh.layer4)
            source = own if self.pretrained else None
            return Branch(layers, fresh.num_features).started_from(source)

        return trunk, branch


def load_file(network: Any, path: Path, channels: int) -> None:
    from timm.models import adapt_input_conv

    config = network.pretrained_cfg

    def adapt(state: dict[str, Tensor]) -> None:
        for layer in names(config.get("first_conv")):
            weight = state.get(f"{layer}.weight")
            if weight is not None and weight.shape[1] == 3 != channels:
                state[f"{layer}.weight"] = adapt_input_conv(channels, weight)

    load_weights(network, path, names(config.get("classifier")) or CLASSIFIERS, adapt)


def names(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """RGB values for images of another channel count: their mean, for every channel."""
    return tuple(values) if len(values) == channels else (sum(values) / len(values),) * channels

"""The ResNet-10 for large images."""

from collections.abc import Callable

from torch import Tensor, nn

from wcdas.backbones.base import Backbone, Branch


class ResNet10(Backbone):
    """ResNet-18 with one block a stage: 7×7 stem, max-pool, 64 … 512 channels, 512 features.

    It halves the size five times: for images of 64 pixels and more.

    Example:
        >>> import torch
        >>> ResNet10()(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 512])
    """

    num_features = 512
    LAYERS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")

    def __init__(self, channels: int = 3) -> None:
        from torchvision.models.resnet import BasicBlock, ResNet

        super().__init__()
        network = ResNet(BasicBlock, [1, 1, 1, 1])
        if channels != 3:
            network.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        for name in self.LAYERS:
            self.add_module(name, getattr(network, name))

    def forward_map(self, x: Tensor) -> Tensor:
        for name in self.LAYERS:
            x = getattr(self, name)(x)
        return x

    def split(self, width: float = 1.0) -> tuple[nn.Module, Callable[[], Backbone]]:
        """The first two stages are shared, an expert has the third and the fourth."""
        *early, third, fourth = (getattr(self, name) for name in self.LAYERS)
        own = nn.Sequential(third, fourth)
        channels = [max(1, round(width * c)) for c in (256, 512)]

        def branch() -> Backbone:
            layers = nn.Sequential(stage(128, channels[0]), stage(*channels))
            return Branch(layers, channels[1]).started_from(own if self.pretrained else None)

        return nn.Sequential(*early), branch


def stage(in_channels: int, channels: int) -> nn.Sequential:
    """One block that halves the size, as torchvision builds and initialises it."""
    from torchvision.models.resnet import BasicBlock, conv1x1

    shortcut = nn.Sequential(conv1x1(in_channels, channels, 2), nn.BatchNorm2d(channels))
    block = BasicBlock(in_channels, channels, 2, shortcut)
    for module in block.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(block)

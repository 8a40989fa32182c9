"""The ResNets of the paper: the ResNet-32 for small images, the ResNet-10 for large ones."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.backbones.base import Backbone, Branch


def convolution(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut without parameters (option A of the paper).

    Where the block halves the size, the shortcut takes every second place and pads the new
    channels with zeros, one half before and one half after.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(in_channels, channels, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = convolution(channels, channels)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.padding = (channels - in_channels) // 2

    def shortcut(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            return x
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *2 * (self.padding,)))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


def initialise(network: nn.Module, **options: Any) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, **options)


class ResNet32(Backbone):
    """3 stages × 5 blocks of 16, 32 and 64 channels, 0.46 M parameters, 64 features.

    He et al., "Deep Residual Learning for Image Recognition", 2016, section 4.2
    (arXiv:1512.03385).

    Example:
        >>> import torch
        >>> ResNet32(channels=1)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
    """

    num_features = 64

    def __init__(self, channels: int = 3, blocks: int = 5) -> None:
        super().__init__()
        self.conv1 = convolution(channels, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.stage1 = self.stage(16, 16, blocks, stride=1)
        self.stage2 = self.stage(16, 32, blocks, stride=2)
        self.stage3 = self.stage(32, 64, blocks, stride=2)
        initialise(self)

    @staticmethod
    def stage(in_channels: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
        first = Block(in_channels, channels, stride)
        return nn.Sequential(first, *(Block(channels, channels, 1) for _ in range(blocks - 1)))

    def forward_map(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return self.stage3(self.stage2(self.stage1(x)))

    def split(self, width: float = 1.0) -> tuple[nn.Module, Callable[[], Backbone]]:
        """The first stage is shared, an expert has the second and the third."""
        trunk = nn.Sequential(self.conv1, self.bn1, nn.ReLU(), self.stage1)
        own = nn.Sequential(self.stage2, self.stage3)
        second, third = (2 * max(1, round(width * channels / 2)) for channels in (32, 64))

        def branch() -> Backbone:
            layers = nn.Sequential(
                self.stage(16, second, len(self.stage2), stride=2),
                self.stage(second, third, len(self.stage3), stride=2),
            )
            initialise(layers)
            return Branch(layers, third).started_from(own if self.pretrained else None)

        return trunk, branch


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
            initialise(network.conv1, mode="fan_out", nonlinearity="relu")
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
    initialise(block, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(block)

"""The ResNet-32 for small images."""

from collections.abc import Callable

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


def initialise(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)


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
            blocks = len(self.stage2), len(self.stage3)
            layers = nn.Sequential(
                self.stage(16, second, blocks[0], stride=2),
                self.stage(second, third, blocks[1], stride=2),
            )
            initialise(layers)
            return Branch(layers, third).started_from(own if self.pretrained else None)

        return trunk, branch

"""The ResNet-10 for large images."""

from torch import Tensor, nn

from wcdas.backbones.base import Backbone


class ResNet10(Backbone):
    """ResNet-18 with one block a stage: 7×7 stem, max-pool, 64 … 512 channels, 512 features.

    It halves the size five times: for images of 64 pixels and more.

    Example:
        >>> import torch
        >>> ResNet10()(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 512])
    """

    num_features = 512

    def __init__(self, channels: int = 3) -> None:
        from torchvision.models.resnet import BasicBlock, ResNet

        super().__init__()
        network = ResNet(BasicBlock, [1, 1, 1, 1])
        if channels != 3:
            network.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        for name, module in network.named_children():
            if name not in ("avgpool", "fc"):
                self.add_module(name, module)

    def forward_map(self, x: Tensor) -> Tensor:
        for module in self.children():
            x = module(x)
        return x

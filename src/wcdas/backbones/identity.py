"""No backbone: the data are features already."""

from collections.abc import Callable

from torch import Tensor, nn

from wcdas.backbones.base import Backbone


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

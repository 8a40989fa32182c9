"""What every backbone offers."""

from torch import Tensor, nn


class Backbone(nn.Module):
    """Images (B, channels, H, W) → features (B, num_features).

    `forward_map` gives the feature map before pooling, `pool` turns it into the features. `mean`
    and `std` are the normalisation, one number a channel, that pretrained weights expect; None
    where the data decides.
    """

    num_features: int
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def forward_map(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def pool(self, feature_map: Tensor) -> Tensor:
        """The mean over the places of the map."""
        return feature_map.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.forward_map(x))

"""Necks: layers between the pooled features of a backbone and the head.

The pooled features of a ReLU network have no negative entries: at the start of training they lie in
a narrow cone, with cosines near 1 between any two images. Batch norm centres them.

Like heads, necks compute in the precision of their parameters, whatever autocast says.
"""

from torch import Tensor, nn

from wcdas.checks import check_whole, create
from wcdas.errors import unknown
from wcdas.heads.functional.arithmetic import without_autocast


class Neck(nn.Module):
    """Hands the features on as they are."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        check_whole("in_features", in_features)
        self.in_features = self.out_features = in_features

    def forward(self, features: Tensor) -> Tensor:
        return features


class BatchNormNeck(Neck):
    """Batch norm of every feature."""

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features)
        self.norm = nn.BatchNorm1d(in_features)

    def forward(self, features: Tensor) -> Tensor:
        with without_autocast(features):
            return self.norm(features.to(self.norm.weight.dtype))


class LinearNeck(Neck):
    """A linear layer without bias, then batch norm."""

    def __init__(self, in_features: int, features: int = 0) -> None:
        super().__init__(in_features)
        self.out_features = features or in_features
        self.linear = nn.Linear(in_features, self.out_features, bias=False)
        self.norm = nn.BatchNorm1d(self.out_features)

    def forward(self, features: Tensor) -> Tensor:
        with without_autocast(features):
            return self.norm(self.linear(features.to(self.linear.weight.dtype)))


class ReLUNeck(LinearNeck):
    """A linear layer without bias, then batch norm and ReLU."""

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features).relu()


NECKS: dict[str, type[Neck]] = {
    "none": Neck,
    "batch-norm": BatchNormNeck,
    "linear": LinearNeck,
    "linear-relu": ReLUNeck,
}


def create_neck(name: str, in_features: int, features: int = 0) -> Neck:
    """Build a neck by name; put it between pooled features and a head.

    In training it takes batches of two samples or more, as batch norm does.

    Args:
        name: `none`, `batch-norm`, `linear`: a linear layer without bias, then batch norm, or
            `linear-relu`: the same, then ReLU.
        in_features: length of a feature vector.
        features: length of what comes out of a linear layer; 0 is as long as what goes in.

    Example:
        >>> neck = create_neck("linear", in_features=64, features=128)
        >>> neck(torch.randn(8, 64)).shape, neck.out_features
        (torch.Size([8, 128]), 128)
    """
    check_neck(name, features)
    options = {"features": features} if features else {}
    return create("neck", NECKS, name, options, in_features=in_features)


def check_neck(name: str, features: int) -> None:
    """Refuse an unknown name, and a length that is none or has no effect."""
    if name not in NECKS:
        raise unknown("neck", name, NECKS)
    check_whole("features", features, at_least=0)
    if features and not issubclass(NECKS[name], LinearNeck):
        raise ValueError(
            f"features is {features}, but a neck {name!r} gives as many as it gets; leave it out, "
            "or take the neck 'linear'"
        )


def list_necks() -> list[str]:
    """The names `create_neck` knows."""
    return list(NECKS)

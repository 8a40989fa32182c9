"""A classifier is a backbone and a head."""

from collections.abc import Callable

from torch import Tensor, nn

from wcdas.backbones.base import Backbone
from wcdas.heads import HEADS, Head


class Classifier(nn.Module):
    """Images → features → logits.

    `auxiliary` is what only training needs (a projection, a queue, centres); it is trained and
    checkpointed with the rest, and no part of the model file.
    """

    def __init__(self, backbone: Backbone, head: Head, auxiliary: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.auxiliary = auxiliary

    def features(self, inputs: Tensor) -> Tensor:
        """The input of the head, (N, d)."""
        return self.backbone(inputs)

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.head(self.features(inputs), labels)


def next_head(previous: Head, wanted: str, new_head: Callable[[int], Head]) -> Head:
    """The head of the next stage: the same, a fresh one, or another built from its weights."""
    if wanted == "keep":
        return previous
    if wanted == "fresh":
        return new_head(previous.in_features).to(previous.weight.device)
    return HEADS[wanted].from_head(previous)

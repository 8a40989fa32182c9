"""A classifier is a backbone and a head."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone
from wcdas.heads import HEADS, Head, LinearHead, create_head
from wcdas.heads.linear import RescaledHead


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
        """What the head is given, (N, d)."""
        return self.backbone(inputs)

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.head(self.features(inputs), labels)


def next_head(previous: Head, wanted: str, own: str, options: Mapping[str, Any]) -> Head:
    """The head of the next stage: the same, a fresh one, or another built from its weights."""
    if wanted == "keep":
        return previous
    sizes = previous.in_features, previous.num_classes
    if wanted == "fresh":
        return create_head(own, *sizes, **options).to(previous.weight.device)
    if from_linear(wanted) and isinstance(previous, LinearHead):
        return cast(type[RescaledHead], HEADS[wanted]).from_linear(previous)
    head = create_head(wanted, *sizes).to(previous.weight.device)
    with torch.no_grad():
        head.weight.copy_(previous.weight)
    return head


def from_linear(name: str) -> bool:
    """Whether heads of a name are made of a trained linear one."""
    return issubclass(HEADS.get(name, Head), RescaledHead)

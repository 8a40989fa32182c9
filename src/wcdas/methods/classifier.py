"""A classifier is a backbone and a head."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone
from wcdas.heads import Head, LinearHead, LWSHead, TauNormHead, create_head

# Heads that are made of a trained linear one.
FROM_LINEAR: dict[str, type[LWSHead] | type[TauNormHead]] = {
    "lws": LWSHead,
    "tau-norm": TauNormHead,
}


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
    if wanted in FROM_LINEAR and isinstance(previous, LinearHead):
        return FROM_LINEAR[wanted].from_linear(previous)
    head = create_head(wanted, *sizes).to(previous.weight.device)
    with torch.no_grad():
        head.weight.copy_(previous.weight)
    return head


def built_options(head: Head) -> dict[str, Any]:
    """The options that make a head of the same shape as one `next_head` built from another."""
    return {"bias": head.bias is not None} if isinstance(head, LinearHead) else {}

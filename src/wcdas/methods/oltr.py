"""OLTR: a memory of class centroids that enriches the features of rare classes.

Liu et al., "Large-Scale Long-Tailed Recognition in an Open World", 2019 (arXiv:1904.05160). The
first stage trains a plain classifier. The second begins by filling the memory with the mean feature
of every class, and trains everything on classes drawn in turn: the dynamic meta-embedding
(`heads/oltr.py`), the attention on the feature map, and the centroids in the memory by a loss of
their own, whose form and constants are those of the authors' code.
"""

from typing import cast

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone, Identity
from wcdas.heads.functional.arithmetic import full_precision, matmul
from wcdas.heads.oltr import OLTRHead, Switch
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StageStart, StepBatch, StepState, two_stages
from wcdas.targets import MixedLabels, loss_of


class ModulatedAttention(nn.Module):
    """f + MA(f) ⊗ SA(f) on a feature map (B, C, H, W), equation 5.

    SA is self-attention between the places of the map, MA a softmax over the places. The authors'
    code takes MA from a linear layer on the whole map, which ties it to one size of images; here
    every place's own features give its weight. It begins as the identity.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(1, channels // 2)
        self.query, self.key, self.value = (nn.Conv2d(channels, inner, 1) for _ in range(3))
        self.back = nn.Conv2d(inner, channels, 1, bias=False)
        self.place = nn.Conv2d(channels, 1, 1)
        for layer in (self.query, self.key, self.value):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(cast(Tensor, layer.bias))
        nn.init.zeros_(self.back.weight)

    def forward(self, f: Tensor) -> Tensor:
        query, key, value = (layer(f).flatten(2) for layer in (self.query, self.key, self.value))
        weights = (query.mT @ key).softmax(2)
        self_attention = self.back((value @ weights.mT).unflatten(2, f.shape[2:]))
        modulation = self.place(f).flatten(2).softmax(2).unflatten(2, f.shape[2:])
        return f + modulation * self_attention


class AttentiveBackbone(Backbone):
    """A backbone with attention on its feature map, once it is switched on.

    Maps of another form than (B, pooled_features, H, W), such as the tokens of a transformer, which
    has attention of its own, stay as they are.
    """

    def __init__(self, inner: Backbone) -> None:
        super().__init__()
        self.inner = inner
        self.num_features = inner.num_features
        self.mean, self.std, self.weights_from = inner.mean, inner.std, inner.weights_from
        self.attention = ModulatedAttention(inner.pooled_features)
        self.attends = Switch()

    def forward_map(self, x: Tensor) -> Tensor:
        f = self.inner.forward_map(x)
        if self.attends.on and f.dim() == 4 and f.shape[1] == self.inner.pooled_features:
            return self.attention(f)
        return f

    def pool(self, feature_map: Tensor) -> Tensor:
        """The features behind the neck of the backbone."""
        return self.inner.neck(self.inner.pool(feature_map))

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """Those of the backbone: the attention is fresh, as a neck is."""
        return self.inner.parameters_by_layer()


def build_model(parts: Parts) -> Classifier:
    backbone = parts.backbone
    if not isinstance(backbone, Identity):
        backbone = AttentiveBackbone(backbone)
    return Classifier(backbone, OLTRHead(parts.new_head(backbone.num_features)))


def begin_stage(model: Classifier, start: StageStart) -> None:
    if start.stage != "classifier":
        return
    features, labels = start.features()
    head = cast(OLTRHead, model.head)
    device = head.memory.device
    head.fill_memory(features.to(device), labels.to(device))
    if isinstance(model.backbone, AttentiveBackbone):
        model.backbone.attends.turn_on()


MARGIN, REPEL = 10.0, 0.01


def centroid_loss(features: Tensor, memory: Tensor, target: Tensor | MixedLabels) -> Tensor:
    """½·mean ‖x − M_y‖² + 0.01·max(0, 10 − mean Σ_{j≠y} ‖x − M_j‖² / C): to the own centroid, and
    away from the others."""
    x, memory = full_precision(features), full_precision(memory)
    squares = x.square().sum(1, keepdim=True) + memory.square().sum(1) - 2 * matmul(x, memory.mT)

    def distances(labels: Tensor) -> Tensor:
        others = squares.scatter(1, labels.unsqueeze(1), 0).mean(1)
        return torch.stack([(x - memory[labels]).square().sum(1) / 2, others])

    own, others = loss_of(target, distances)
    return own.mean() + REPEL * (MARGIN - others.mean()).relu()


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    features = state.features(batch.inputs)
    loss = state.loss(features, batch.target)
    head = cast(OLTRHead, model.head)
    if not head.memory_is_filled.on:
        return loss
    with torch.autocast(features.device.type, enabled=False):
        pull = centroid_loss(features, head.memory, batch.target)
    return loss + state.options["centroid_weight"] * pull


OLTR = Method(
    summary="a memory of class centroids enriches the features; cosine classifier; two stages",
    paper="Liu et al., 2019 (arXiv:1904.05160)",
    # One rate for all, where the authors give the network a tenth of the classifier's; clipping
    # sees it through the first steps with a memory.
    defaults=two_stages(
        {"name": "linear"}, classifier={"trains": "all", "sampler": "class-aware", "clip": 5.0}
    ),
    reported=(
        "ImageNet-LT beside open classes, ResNet-10, in the authors' repository: "
        "many 44.2, medium 35.2, few 17.5"
    ),
    options={"centroid_weight": 0.01},
    prior="uniform",
    build_model=build_model,
    begin_stage=begin_stage,
    training_step=training_step,
)

"""Center loss: softmax with features pulled to the moving center of their class.

Wen et al., "A Discriminative Feature Learning Approach for Deep Face Recognition", 2016 (ECCV):
L = L_S + λ L_C, with centers that move by α towards the features of every batch.
"""

from typing import cast

from torch import Tensor

from wcdas.errors import explained
from wcdas.losses.center import CenterLoss
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage
from wcdas.targets import loss_of


def build_model(parts: Parts) -> Classifier:
    length = parts.backbone.num_features
    weight, alpha = parts.options["weight"], parts.options["alpha"]
    with explained("options."):
        centers = CenterLoss(length, len(parts.class_counts), weight, alpha, reduction="none")
    return Classifier(parts.backbone, parts.new_head(length), centers)


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    features = state.features(batch.inputs)
    centers = cast(CenterLoss, model.auxiliary)
    pull = loss_of(batch.target, lambda labels: centers(features, labels))
    return state.loss(features, batch.target) + pull.mean()


CENTER_LOSS = Method(
    summary="softmax and the distance of features to the center of their class, one stage",
    paper="Wen et al., 2016 (ECCV)",
    defaults=one_stage({"name": "linear"}),
    options={"weight": 0.003, "alpha": 0.5},  # λ and α
    prior="train",
    build_model=build_model,
    training_step=training_step,
)

"""Gaussian affinity: classes as clusters with a margin between them, equally far apart.

Hayat et al., "Gaussian Affinity for Max-Margin Class Imbalanced Learning", 2019
(arXiv:1901.07711): L = L_mm + R(w). Its authors published no code. Margin, batch norm before the
head and the length of features beside σ are those of a re-implementation,
`cnn_cifar_affinity.py` of koshian2/affinity-loss, which has λ = 0.43 and σ = 90 for CIFAR-10, and
0.75 and 10 for MNIST (`cnn_mnist_affinity.py`). Here σ stays 10, and the head's scale of features
is fitted to the first batch instead. As there, the hinges of the other classes are summed.
"""

from typing import cast

from torch import Tensor

from wcdas import processes
from wcdas.errors import InputError
from wcdas.heads.functional.arithmetic import full_precision
from wcdas.heads.gaussian_affinity import GaussianAffinityHead
from wcdas.losses.affinity import diversity
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage, plain_model


def build_model(parts: Parts) -> Classifier:
    model = plain_model(parts)
    if not isinstance(model.head, GaussianAffinityHead):
        raise InputError(
            f"the head is {type(model.head).__name__}, but gaussian-affinity spreads the "
            "prototypes of a gaussian-affinity head; leave head.name out"
        )
    return model


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    head = cast(GaussianAffinityHead, model.head)
    features = state.features(batch.inputs)
    squared_length = full_precision(features.detach()).square().sum(1).mean()
    head.fit_scale(processes.mean(squared_length))
    spread = diversity(head.prototypes.flatten(0, 1))
    return state.loss(features, batch.target) + state.options["diversity"] * spread


GAUSSIAN_AFFINITY = Method(
    summary="Gaussian affinity to class prototypes, max-margin loss, prototypes equally far apart",
    paper="Hayat et al., 2019 (arXiv:1901.07711)",
    defaults=one_stage(
        {"name": "gaussian-affinity"},
        {"loss": "affinity", "loss_options": {"margin": 0.43}},
        neck="batch-norm",
    ),
    options={"diversity": 1.0},  # the weight of R(w)
    build_model=build_model,
    training_step=training_step,
)

"""SADE: one expert for the classes as they come, one for equal classes, one for the reverse.

Y. Zhang, B. Hooi, L. Hong, J. Feng, "Self-Supervised Aggregation of Diverse Experts for
Test-Agnostic Long-Tailed Recognition", 2022 (arXiv:2107.09249). Predictions average the experts;
`wcdas evaluate --aggregate-experts` learns their weights on the test images, without labels.
"""

from dataclasses import replace

import torch
from torch import Tensor

from wcdas.backbones.base import Experts
from wcdas.checks import as_class_counts
from wcdas.heads.experts import ExpertsHead
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage


def build_model(parts: Parts) -> Classifier:
    return experts_model(parts, 3, needed_by="sade")


def experts_model(parts: Parts, experts: int, needed_by: str) -> Classifier:
    """Several experts, each with a head of its own, on classes that all have images."""
    as_class_counts(parts.class_counts, needed_by)
    backbone = Experts(parts.backbone, experts, parts.options["width"])
    return Classifier(backbone, ExpertsHead([parts.new_head(size) for size in backbone.sizes]))


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    priors = log_priors(state.class_counts, state.options["inverse"])
    return expert_losses(model, batch, state, priors).sum()


def expert_losses(
    model: Classifier, batch: StepBatch, state: StepState, log_priors: Tensor
) -> Tensor:
    """The loss of every expert, with its own row of log priors added to its logits, (experts,)."""
    head = model.head
    assert isinstance(head, ExpertsHead)
    features = state.features(batch.inputs)
    losses = [
        state.loss(part, batch.target, expert, log_prior)
        for (expert, part), log_prior in zip(head.parts(features), log_priors, strict=True)
    ]
    return torch.stack(losses)


def log_priors(class_counts: Tensor, inverse: float) -> Tensor:
    """The log priors that the loss adds to each expert's logits, (experts, classes).

    0 (softmax), log π (balanced softmax) and log π − λ log π̄ (inverse softmax), where the
    frequencies π̄ are those of π in reverse: the rarest class has that of the most frequent one.
    """
    log_prior = (class_counts.double() / class_counts.sum()).log()
    rising, classes = log_prior.sort(stable=True)
    reverse = torch.empty_like(log_prior).scatter(0, classes, rising.flip(0))
    shifts = [torch.zeros_like(log_prior), log_prior, log_prior - inverse * reverse]
    return torch.stack(shifts).float()


SADE = Method(
    summary="three experts: for the training mix, for equal classes, for the reverse mix",
    paper="Zhang et al., 2022 (arXiv:2107.09249)",
    reported="the authors' README: CIFAR-100-LT IF 100, ResNet-32 49.8; ImageNet-LT, ResNeXt-50 "
    "58.8; iNaturalist 2018, ResNet-50 72.9",
    prior="none",
    experts=True,
    options={
        "width": 0.75,  # of an expert's layers
        "inverse": 2.0,  # λ; 1 for iNaturalist
    },
    build_model=build_model,
    training_step=training_step,
    defaults=one_stage({"name": "cosine", "scale": 30.0}),
)

SADE_WCDAS = replace(
    SADE,
    summary="three experts with wrapped Cauchy heads, for three class mixes",
    paper="Zhang et al., 2022 (arXiv:2107.09249); Han, 2023",
    reported="",
    # Room for the priors from the start.
    defaults=one_stage({"name": "wcdas", "start": "paper", "scale_init": 10.0}),
)

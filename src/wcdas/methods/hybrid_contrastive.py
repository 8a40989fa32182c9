"""Hybrid networks: a contrastive branch for the features, a balanced one for the classifier."""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from wcdas.checks import check_positive
from wcdas.errors import InputError, unknown
from wcdas.heads.functional.arithmetic import full_precision, matmul, unit
from wcdas.losses.supervised_contrastive import SupervisedContrastiveLoss
from wcdas.methods.classifier import Classifier
from wcdas.methods.contrastive import check_backbone, projection
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage
from wcdas.processes import of_all

CONTRASTS = ("supervised", "prototypical")


class PrototypicalContrastiveLoss(nn.Module):
    """Draws embeddings to the learned prototype of their class, away from all others.

    L_i = −log( exp(z_i·p_y/τ) / Σ_{j ≠ y} exp(z_i·p_j/τ) ), z and p at unit length

    With several prototypes a class, the exponentials of a class are summed.
    """

    def __init__(
        self, features: int, num_classes: int, temperature: float = 0.1, prototypes: int = 1
    ) -> None:
        super().__init__()
        self.num_classes, self.temperature = num_classes, temperature
        self.prototypes = nn.Parameter(torch.empty(num_classes * prototypes, features))
        nn.init.kaiming_uniform_(self.prototypes, a=math.sqrt(5))  # as the weights of the heads

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        z, p = unit(embeddings)[0], unit(self.prototypes.to(embeddings.dtype))[0]
        similarity = (matmul(z, p.mT) / self.temperature).unflatten(1, (self.num_classes, -1))
        of_class = similarity.logsumexp(2)
        column = labels[:, None]
        others = of_class.scatter(1, column, -torch.inf).logsumexp(1)
        return (others - of_class.gather(1, column).squeeze(1)).mean()


class ContrastiveBranch(nn.Module):
    """Features → embeddings → the contrastive loss of the method's options."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        options, num_classes = parts.options, len(parts.class_counts)
        length, temperature = options["projection"], options["temperature"]
        self.projection = projection(parts.backbone.num_features, length)
        self.loss: nn.Module = SupervisedContrastiveLoss(temperature)
        if options["contrast"] == "prototypical":
            self.loss = PrototypicalContrastiveLoss(
                length, num_classes, temperature, options["prototypes"]
            )

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """The loss of all processes' samples."""
        embeddings = self.projection(full_precision(of_all(features)))
        return self.loss(embeddings, of_all(labels))


def build_model(parts: Parts) -> Classifier:
    check_backbone(parts, "hybrid-contrastive")
    options, contrast = parts.options, parts.options["contrast"]
    if contrast not in CONTRASTS:
        raise unknown("contrast", contrast, CONTRASTS)
    for name in ("temperature", "projection", "prototypes"):
        check_positive(f"options.{name}", options[name])
    if contrast == "prototypical" and len(parts.class_counts) < 2:
        raise InputError("prototypes of one class have no other to be told from; give 2 classes")
    head = parts.new_head(parts.backbone.num_features)
    return Classifier(parts.backbone, head, ContrastiveBranch(parts))


def contrast_weight(progress: Tensor) -> Tensor:
    """α = 1 − (T/T_max)², from the features alone to the classifier alone."""
    return 1 - progress**2


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    """L = α·L_contrast(two views, as they come) + (1 − α)·L_class(drawn class-balanced)."""
    features = state.features(batch.inputs)
    if not batch.views:  # a stage that trains the classifier alone
        return state.loss(features, batch.target)
    if batch.second is None:
        raise InputError(
            f"stages.{state.stage}.second_sampler is empty, but the classifier learns from it; "
            "expected 'class-balanced' or another sampler"
        )
    assert isinstance(model.auxiliary, ContrastiveBranch)
    views = [features, *(state.features(view) for view in batch.views)]
    contrast = model.auxiliary(torch.cat(views), batch.labels.repeat(len(views)))
    inputs, labels = batch.second
    classification = state.loss(state.features(inputs), labels)
    alpha = contrast_weight(state.progress)
    return alpha * contrast + (1 - alpha) * classification


HYBRID_CONTRASTIVE = Method(
    summary="a contrastive branch gives way to a class-balanced classifier branch, one stage",
    paper="Wang et al., 2021 (arXiv:2103.14267)",
    defaults=one_stage({"name": "linear"}, {"second_sampler": "class-balanced"}),
    reported="top-1, CIFAR-10-LT at imbalance 100, 50, 10, ResNet-32: supervised 81.4, 85.4, 91.1; "
    "prototypical 78.8, 83.9, 90.1",
    options={"contrast": "supervised", "temperature": 0.1, "projection": 128, "prototypes": 1},
    views=("simclr",),
    unmixed=("representation",),
    prior="uniform",
    build_model=build_model,
    training_step=training_step,
)

HYBRID_CONTRASTIVE_WCDAS = replace(
    HYBRID_CONTRASTIVE,
    summary="the hybrid contrastive network with the wrapped Cauchy head as its classifier",
    paper="Wang et al., 2021 (arXiv:2103.14267); Han, 2023 (ICML)",
    defaults=one_stage(
        {"name": "wcdas", "start": "paper", "scale_init": 20.0},
        {"second_sampler": "class-balanced", "concentration_weight_decay": 0.0},
    ),
    reported="",
)

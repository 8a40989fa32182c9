"""Parametric contrastive learning.

J. Cui, Z. Zhong, S. Liu, B. Yu, J. Jia, "Parametric Contrastive Learning", 2021 (arXiv:2107.12028).

Queries are augmented as the stage says, keys as in MoCo v2. The options are those of the authors'
CIFAR-100-LT scripts, `PaCo/LT/sh/CIFAR100_train_imb*.sh` of
dvlab-research/Parametric-Contrastive-Learning, one and the same at imbalance 100, 50 and 10; what
their scripts have for ImageNet-LT and iNaturalist 2018 stands in the recipes of these, and how long
and at which rate CIFAR is trained in its own.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from wcdas.checks import as_class_counts, check_from_zero, check_positive
from wcdas.errors import InputError
from wcdas.heads.functional.arithmetic import matmul
from wcdas.methods.classifier import Classifier
from wcdas.methods.contrastive import EMPTY, MomentumContrast, check_backbone, projection
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage
from wcdas.processes import of_all


def paco_loss(
    logits: Tensor,
    queries: Tensor,
    others: Tensor,
    labels: Tensor,
    other_labels: Tensor,
    *,
    alpha: float,
    beta: float,
    gamma: float,
    temperature: float,
) -> Tensor:
    """The class centres and other embeddings under one softmax, each positive with its weight.

    D_i = Σ_j exp(z_ij) + γ·Σ_{a ≠ i} exp(q_i·k_a/τ)
    L_i = −( β·log(exp(z_iy)/D_i) + α·Σ_{p ∈ P(i)} log(exp(q_i·k_p/τ)/D_i) ) / (β + α·|P(i)|)

    z are `logits` (B, C), those of the centres with the logarithm of the class prior; q are
    `queries` (B, d) and k `others` (M, d), both of unit length and the first B of k the queries
    themselves; `other_labels` (M,) are `EMPTY` where there is nothing yet.
    """
    pairs = matmul(queries, others.mT) / temperature
    rows = torch.arange(len(others), device=labels.device)
    there = (other_labels != EMPTY) & (rows != rows[: len(labels), None])
    positive = there & (labels[:, None] == other_labels)
    share = math.log(gamma) if gamma else -math.inf
    against = torch.cat((logits, pairs.masked_fill(~there, -math.inf) + share), dim=1)
    denominator = against.logsumexp(1, keepdim=True)
    centre = (logits.gather(1, labels[:, None]) - denominator).squeeze(1)
    pulled = torch.where(positive, pairs - denominator, 0).sum(1)
    weight = beta + alpha * positive.sum(1, dtype=pairs.dtype)
    return -((beta * centre + alpha * pulled) / weight).mean()


class PaCoParts(MomentumContrast):
    """Momentum contrast, and the logarithm of the class prior."""

    log_prior: Tensor

    def __init__(self, parts: Parts) -> None:
        options, width = parts.options, parts.backbone.num_features
        network = projection(width, options["projection"], batch_norm=True)
        super().__init__(parts.backbone, network, options["momentum"], options["queue"])
        counts = as_class_counts(parts.class_counts, needed_by="paco")
        self.register_buffer("log_prior", (counts / counts.sum()).log().float(), persistent=False)


def build_model(parts: Parts) -> Classifier:
    check_backbone(parts, "paco")
    options = parts.options
    for name in ("beta", "temperature", "queue", "projection"):
        check_positive(f"options.{name}", options[name])
    for name in ("alpha", "gamma"):
        check_from_zero(f"options.{name}", options[name])
    check_from_zero("options.momentum", options["momentum"], below=1)
    extra = PaCoParts(parts)
    return Classifier(parts.backbone, parts.new_head(parts.backbone.num_features), extra)


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    """Queries against the centres, each other, their keys and the queue."""
    local = state.features(batch.inputs)
    if not batch.views:  # a stage that trains the classifier alone
        return state.loss(local, batch.target)
    if len(batch.labels) < 2:
        raise InputError(
            f"stage {state.stage} trains on one image at a time, but paco's projection normalises "
            "over a batch; expected batch_size / accumulate of at least 2"
        )
    extra, options = model.auxiliary, state.options
    assert isinstance(extra, PaCoParts)
    features, labels = of_all(local), of_all(batch.labels)
    queries = extra.queries(features)
    keys = extra.keys(model.backbone, batch.views[0], state.precision)
    loss = paco_loss(
        model.head(features, labels) + extra.log_prior,
        queries,
        torch.cat((queries, keys, extra.queue.keys)),
        labels,
        torch.cat((labels, labels, extra.queue.labels)),
        alpha=options["alpha"],
        beta=options["beta"],
        gamma=options["gamma"],
        temperature=options["temperature"],
    )
    extra.queue.push(keys, labels)
    return loss


PACO = Method(
    summary="class centres and a queue of keys under one softmax, one stage",
    paper="Cui et al., 2021 (arXiv:2107.12028)",
    defaults=one_stage({"name": "linear"}),
    reported="400 epochs: CIFAR-100-LT IF 100, ResNet-32 52.0; ImageNet-LT, ResNet-50 57.0; "
    "iNaturalist 2018, ResNet-50 73.2",
    options={
        "alpha": 0.01,
        "beta": 1.0,
        "gamma": 1.0,
        "temperature": 0.05,
        "momentum": 0.999,
        "queue": 1024,
        "projection": 32,
    },
    views=("moco",),
    prior="uniform",
    unmixed=("representation",),
    own_loss=("representation",),
    build_model=build_model,
    training_step=training_step,
)

PACO_WCDAS = replace(
    PACO,
    summary="PaCo with the wrapped Cauchy head in place of its class centres",
    paper="Cui et al., 2021 (arXiv:2107.12028); Han, 2023 (ICML)",
    # The scale starts at 1/τ, which is that of the pairs.
    defaults=one_stage(
        {"name": "wcdas", "start": "paper", "scale_init": 20.0},
        {"concentration_weight_decay": 0.0},
    ),
    reported="",
)

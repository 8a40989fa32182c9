"""BalPoE: experts for class mixes on both sides of the balanced one, whose product is balanced.

E. Sanchez Aimar, A. Jonnarth, M. Felsberg, M. Kuhlmann, "Balanced Product of Calibrated Experts for
Long-Tailed Recognition", 2023 (CVPR, arXiv:2206.05260):

    L = 1/K Σ_k CE(z_k + τ_k log π, y),    τ_k = τ + δ(2(k − 1)/(K − 1) − 1),    k = 1 … K.

So expert k learns z_k = log p(x|y) + (1 − τ_k) log π. The product of the experts, up to its
exponent 1/K, has the mean of their logits, and the mean of all τ_k is τ: it is for equally frequent
classes where τ, the `prior` of the stage, is 1. δ is the option `spread`, and 1 − τ_k the paper's
λ_k. The theory wants calibrated experts; mixup is the paper's way to them.

Three experts with 0, 1 and 2 for τ_k, other numbers evenly from 0 to 2, the mean of their losses
where SADE has the sum, a scaled cosine with s = 30, mixup at 0.4, whole width, and the first of
three layers shared, or the first two of four: these are the authors' for CIFAR-100-LT, in
`configs/mixup`, `model` and `utils/util.py` of emasa/BalPoE-CalibratedLT. What they have for other
datasets, and how long and at which rate CIFAR is trained, stands in the recipes.
"""

from dataclasses import replace

import torch
from torch import Tensor

from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage
from wcdas.methods.sade import expert_losses, experts_model

BALANCED = {"prior": 1.0, "mixup": 0.4, "nesterov": True}


def build_model(parts: Parts) -> Classifier:
    return experts_model(parts, parts.options["experts"], needed_by="balpoe")


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    shifts = log_priors(state.class_counts, state.options["experts"], state.options["spread"])
    return expert_losses(model, batch, state, shifts).mean()


def log_priors(class_counts: Tensor, experts: int, spread: float) -> Tensor:
    """(τ_k − τ) log π, what the loss of every expert has beside the stage's prior, (experts,
    classes)."""
    log_prior = (class_counts.double() / class_counts.sum()).log()
    apart = torch.linspace(-spread, spread, experts, dtype=torch.float64, device=log_prior.device)
    return torch.outer(apart, log_prior).float()


BALPOE = Method(
    summary="experts for class mixes on both sides of the balanced one, multiplied; mixup",
    paper="Sanchez Aimar et al., 2023 (arXiv:2206.05260)",
    prior="stage",
    experts=True,
    options={"experts": 3, "width": 1.0, "spread": 1.0},  # K, of an expert's layers, δ
    build_model=build_model,
    training_step=training_step,
    defaults=one_stage({"name": "cosine", "scale": 30.0}, BALANCED),
)

BALPOE_WCDAS = replace(
    BALPOE,
    summary="BalPoE with wrapped Cauchy heads",
    paper="Sanchez Aimar et al., 2023 (arXiv:2206.05260); Han, 2023",
    defaults=one_stage({"name": "wcdas"}, BALANCED | {"concentration_weight_decay": 0.0}),
)

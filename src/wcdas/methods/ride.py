"""RIDE: experts that are trained to disagree, and asked only as far as a sample needs them.

X. Wang, L. Lian, Z. Miao, Z. Liu, S. X. Yu, "Long-tailed Recognition by Routing Diverse
Distribution-Aware Experts", 2021 (arXiv:2010.01809).

Where the paper and the authors' code (frank-xwang/RIDE-LongTailRecognition) differ, this is the
code, `RIDELoss` of `model/loss.py`: an expert is driven away from the mean of all instead of from
every other one, T_j = α·β_j/max β instead of α·(β_j + 1 − max β), which could become negative, and
the mean temperature squared stands before the divergence. The defaults of the options are that
class's; every file in `configs/` has Nesterov's momentum. What they have for one dataset alone
stands in its recipe, such as λ = 0.45 for CIFAR. Routing saves nothing here: it decides which
experts are averaged, and the features of all are computed.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from wcdas.backbones.base import Experts
from wcdas.errors import InputError
from wcdas.heads.experts import ALWAYS, RoutedExpertsHead
from wcdas.methods.classifier import Classifier
from wcdas.methods.ldam_drw import LDAM_DRW
from wcdas.methods.method import REPRESENTATION, Method, Parts, StageStart, StepBatch, StepState

ROUTING = {
    "trains": "classifier",
    "sampler": "class-balanced",
    "epochs": 5,
    "lr": 0.01,
    "batch_size": 512,
    "weight_decay": 5e-4,
    "nesterov": True,
}


def build_model(parts: Parts) -> Classifier:
    options = parts.options
    fits = {
        "threshold": (0 <= options["threshold"] <= 1, "0 to 1"),
        "temperature": (options["temperature"] > 0, "above 0"),
        "temperature_slope": (0 <= options["temperature_slope"] < 1, "at least 0 and below 1"),
        "router_logits": (options["router_logits"] >= 1, "at least 1"),
    }
    for name, (fit, expected) in fits.items():
        if not fit:
            raise InputError(f"options.{name} is {options[name]}; expected {expected}")
    backbone = Experts(parts.backbone, options["experts"], options["width"])
    heads = [parts.new_head(size) for size in backbone.sizes]
    return Classifier(backbone, RoutedExpertsHead(heads, options["router_logits"]))


def begin_stage(model: Classifier, start: StageStart) -> None:
    """The routers decide from the stage on that trains them."""
    if start.stage == "routing":
        assert isinstance(model.head, RoutedExpertsHead)
        p = start.options["threshold"]
        model.head.threshold.fill_(math.log(p / (1 - p)) if 0 < p < 1 else (1 - 2 * p) * ALWAYS)


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    head, options = model.head, state.options
    assert isinstance(head, RoutedExpertsHead)
    features = state.features(batch.inputs)
    if state.stage == "routing":
        return routing_loss(head, features, batch.labels, options["positive_weight"])
    slope = options["temperature_slope"] if state.stage == "reweighting" else 0.0
    temperature = options["temperature"] * relative_temperature(state.class_counts, slope)
    logits = head.expert_logits(features)
    if state.log_prior is not None:
        logits = logits + state.log_prior
    loss = -options["diversity"] * diversity(logits, temperature)
    for expert, part in head.parts(features):
        loss = loss + state.loss(part, batch.target, expert)
    return loss


def relative_temperature(class_counts: Tensor, slope: float) -> Tensor:
    """β_j/max β, β_j = γ·n_j/mean(n) + 1 − γ: lower for the tail, where experts differ more."""
    n = class_counts.float()
    beta = slope * n / n.mean() + 1 - slope
    return beta / beta.max()


def diversity(logits: Tensor, temperature: Tensor) -> Tensor:
    """T̄² Σ_e KL(p̄ ‖ p_e), p = softmax(z_j/T_j), averaged over the batch; p̄ of the mean logits.

    `logits` are (experts, batch, classes), T is `temperature` (classes,). They are those of the
    loss, a class prior in it included: without it experts disagree most cheaply over rare classes,
    whose logits the loss then hardly feels.
    """
    mean = (logits.detach().mean(0) / temperature).log_softmax(-1).expand_as(logits)
    each = (logits / temperature).log_softmax(-1)
    divergence = F.kl_div(each, mean, reduction="sum", log_target=True) / logits.shape[1]
    return temperature.mean() ** 2 * divergence


def routing_loss(
    head: RoutedExpertsHead, features: Tensor, labels: Tensor, positive_weight: float
) -> Tensor:
    """−ω y log σ(r) − (1 − y) log(1 − σ(r)), the mean over routers and samples.

    y is 1 where the experts so far are wrong and with one or more of the next they are right.
    """
    means = head.means(head.expert_logits(features)).detach()
    calls = head.calls(features, means)
    right = means.argmax(2) == labels
    needed = torch.stack([~right[k] & right[k + 1 :].any(0) for k in range(len(calls))])
    losses = torch.where(needed, positive_weight * F.softplus(-calls), F.softplus(calls))
    return losses.mean()


RIDE = Method(
    summary="three experts driven apart, routers that ask as many as a sample needs",
    paper="Wang et al., 2021 (arXiv:2010.01809)",
    reported="the authors' model zoo, 3 experts: CIFAR-100-LT IF 100, ResNet-32 48.6; "
    "ImageNet-LT, ResNeXt-50 55.7; iNaturalist 2018, ResNet-50 71.2",
    prior="none",
    experts=True,
    unmixed=("routing",),
    own_loss=("routing",),
    options={
        "experts": 3,
        "width": 0.75,  # of an expert's layers
        "diversity": 0.2,  # λ
        "temperature": 1.0,  # α
        "temperature_slope": 0.05,  # γ
        "router_logits": 30,
        "positive_weight": 100.0,  # ω
        "threshold": 0.5,  # of σ(r), above which a further expert is asked
    },
    build_model=build_model,
    begin_stage=begin_stage,
    training_step=training_step,
    # In the second stage classes have weights and temperatures of their own.
    defaults={
        "head": LDAM_DRW.defaults["head"],
        "stages": {
            "representation": LDAM_DRW.defaults["stages"]["representation"] | {"nesterov": True},
            "reweighting": LDAM_DRW.defaults["stages"]["reweighting"],
            "routing": ROUTING,
        },
    },
)

# In the place of LDAM's margins and weights stands the class prior in the loss.
RIDE_WCDAS = replace(
    RIDE,
    summary="three experts with wrapped Cauchy heads driven apart, and routers",
    paper="Wang et al., 2021 (arXiv:2010.01809); Han, 2023",
    reported="",
    prior="uniform",
    defaults={
        "head": {"name": "wcdas", "start": "paper", "scale_init": 10.0},
        "stages": {
            "representation": REPRESENTATION | {"nesterov": True, "prior": 1.0},
            "reweighting": {"optimizer": "continue", "share": 0.2},
            "routing": ROUTING,
        },
    },
)

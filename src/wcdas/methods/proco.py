"""Probabilistic contrastive learning: a classifier, and contrast with the distribution of classes.

C. Du, Y. Wang, S. Song, G. Huang, "Probabilistic Contrastive Learning for Long-Tailed Visual
Recognition", 2024 (arXiv:2403.06726).

The image as the stage augments it goes to the classifier. Two further views are projected onto the
unit sphere, where every class has a von Mises–Fisher distribution. Their loss is the supervised
contrastive one, its positives inside the logarithm, with infinitely many samples of every class,
which has a closed form. Nothing of it is left for prediction.

The options are those of the authors' CIFAR code, `ProCo_cifar/main.py` and `models/resnet_cifar.py`
of LeapLabTHU/ProCo, and so are rate, schedule and weight decay in the recipes of CIFAR; what their
code has for ImageNet-LT and iNaturalist 2018 stands in the recipes of these. It differs in this:

- κ is R·d/(1 − R²), without the −R² that it has here, less than 1 % at d = 128;
- a class without embeddings so far has a random direction and R = 0.9; here it is uniform;
- the two views join the statistics one after the other, here together;
- the projection's batch norm sees the classifier's view, too.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import check_from_zero, check_positive, check_whole
from wcdas.heads.functional.arithmetic import full_precision, matmul, unit
from wcdas.methods.classifier import Classifier
from wcdas.methods.contrastive import check_backbone, projection
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage
from wcdas.processes import of_all

LARGEST = 1e5  # κ, also that of a class whose embeddings are all the same
FEWEST = 16  # features of an embedding; with fewer the expansion errs by more than 1e-5


def expected_logits(embeddings: Tensor, parameters: Tensor, temperature: float) -> Tensor:
    """log E[exp(z·x/τ)] with x of every class's von Mises–Fisher distribution, (B, C).

    = log C(κ̃) − log C(κ),  κ̃ = ‖κμ + z/τ‖,  log C(κ) = log I_ν(κ) − ν·log κ,  ν = d/2 − 1

    z are `embeddings` (B, d) of unit length, κμ `parameters` (C, d). With s = √(ν² + κ²) Olver's
    expansion, uniform in κ, is log C = s − ν·log(ν + s) − ½·log s + r(s) + const (F. Olver, 1954;
    DLMF 10.41.3). Of large s̃ and s only the difference is needed, from s̃² − s² = κ̃² − κ², so that
    float32 is enough.
    """
    order = embeddings.shape[1] / 2 - 1
    s = (order**2 + parameters.square().sum(1)).sqrt()
    square = (2 * matmul(embeddings, parameters.mT) + 1 / temperature) / temperature  # κ̃² − κ²
    grown = (s.square() + square).sqrt()
    difference = square / (grown + s)
    logarithms = order * torch.log1p(difference / (order + s)) + torch.log1p(difference / s) / 2
    return difference - logarithms + _rest(grown, order) - _rest(s, order)


def _rest(s: Tensor, order: float) -> Tensor:
    """The logarithm of Olver's series to the third order, r = Σ_k D_k(p)/ν^k with p = ν/s."""
    p = (order / s) ** 2
    first = (3 - 5 * p) / 24
    second = (1 - p * (6 - 5 * p)) / 16
    third = (375 - p * (4779 - p * (9945 - 5525 * p))) / 5760
    return (first + (second + third / s) / s) / s


class ClassDistributions(nn.Module):
    """A von Mises–Fisher distribution for every class, of the embeddings of this epoch and of the
    one before.

    Sums of embeddings and their number are buffers, the first row those of the epoch before.
    """

    sums: Tensor
    counts: Tensor
    epoch: Tensor

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(2, num_classes, features))
        self.register_buffer("counts", torch.zeros(2, num_classes))
        self.register_buffer("epoch", torch.zeros(()))

    @torch.no_grad()
    def add(self, embeddings: Tensor, labels: Tensor, epoch: Tensor) -> None:
        """Count a batch in; `epoch` is that of the stage, a tensor () on the device."""
        begins = epoch != self.epoch
        self.epoch.copy_(epoch)
        ones = torch.ones_like(labels, dtype=embeddings.dtype)
        for kept, values in ((self.sums, embeddings), (self.counts, ones)):
            this, none = kept[1], torch.zeros_like(kept[1])
            kept.copy_(torch.where(begins, torch.stack((this, none)), kept))
            kept[1].index_add_(0, labels, values.to(kept.dtype))

    def parameters_of_classes(self) -> Tensor:
        """κμ of every class, (C, d).

        κ = R·(d − R²)/(1 − R²) with R the length of the mean embedding, near the maximum of the
        likelihood: A. Banerjee, I. Dhillon, J. Ghosh, S. Sra, 2005, JMLR 6; S. Sra, 2012.
        """
        mean = self.sums.sum(0) / self.counts.sum(0).clamp_min(1)[:, None]
        direction, length = unit(mean)
        spread = (1 - length**2).clamp_min(torch.finfo(mean.dtype).tiny)
        kappa = length * (mean.shape[1] - length**2) / spread
        return direction * kappa.clamp_max(LARGEST)[:, None]


class ProbabilisticContrast(nn.Module):
    """Features → embeddings → the expected contrastive loss."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        options, features = parts.options, parts.backbone.num_features
        length, self.temperature = options["projection"], options["temperature"]
        self.projection = projection(features, length, batch_norm=True, hidden=options["hidden"])
        self.distributions = ClassDistributions(length, len(parts.class_counts))

    def forward(
        self, features: Tensor, labels: Tensor, epoch: Tensor, log_prior: Tensor | None
    ) -> Tensor:
        """The loss of all processes' samples, which have joined the distributions before."""
        z, labels = unit(self.projection(full_precision(of_all(features))))[0], of_all(labels)
        self.distributions.add(z.detach(), labels, epoch)
        parameters = self.distributions.parameters_of_classes()
        logits = expected_logits(z, parameters, self.temperature)
        return F.cross_entropy(logits if log_prior is None else logits + log_prior, labels)


def build_model(parts: Parts) -> Classifier:
    check_backbone(parts, "proco")
    options = parts.options
    check_positive("options.temperature", options["temperature"])
    check_from_zero("options.weight", options["weight"])
    check_whole("options.projection", options["projection"], at_least=FEWEST)
    check_whole("options.hidden", options["hidden"])
    head = parts.new_head(parts.backbone.num_features)
    return Classifier(parts.backbone, head, ProbabilisticContrast(parts))


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    """L = L_class(as the stage augments) + w·L_contrast(views), both with the class prior."""
    features = state.features(torch.cat((batch.inputs, *batch.views)))
    count = len(batch.inputs)
    loss = state.loss(features[:count], batch.target)
    if not batch.views:  # a stage that trains the classifier alone
        return loss
    assert isinstance(model.auxiliary, ProbabilisticContrast)
    labels = batch.labels.repeat(len(batch.views))
    contrast = model.auxiliary(features[count:], labels, state.epoch, state.log_prior)
    return loss + state.options["weight"] * contrast


PROCO = Method(
    summary="softmax with the class prior, contrast with vMF distributions of classes, one stage",
    paper="Du et al., 2024 (arXiv:2403.06726)",
    defaults=one_stage({"name": "linear"}, {"prior": 1.0}),
    reported="CIFAR-100-LT IF 100, ResNet-32: 52.8, 400 epochs 54.2; CIFAR-10-LT IF 100: 85.9; "
    "ImageNet-LT, ResNet-50: 57.3, 180 epochs 57.8; iNaturalist 2018, ResNet-50: 73.5",
    options={"temperature": 0.1, "weight": 1.0, "hidden": 512, "projection": 128},
    views=("proco", "proco"),
    prior="uniform",
    build_model=build_model,
    training_step=training_step,
)

PROCO_WCDAS = replace(
    PROCO,
    summary="ProCo with the wrapped Cauchy head as its classifier",
    paper="Du et al., 2024 (arXiv:2403.06726); Han, 2023 (ICML)",
    defaults=one_stage({"name": "wcdas"}, {"prior": 1.0, "concentration_weight_decay": 0.0}),
    reported="",
)

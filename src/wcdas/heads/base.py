"""The base of all heads: features in, logits out, softmax cross-entropy on them."""

import math
from copy import deepcopy
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import (
    check_features,
    check_from_zero,
    check_labels,
    check_reduction,
    check_target,
    check_whole,
)
from wcdas.heads.functional.arithmetic import full_precision, matmul, unit, without_autocast
from wcdas.targets import MixedLabels, loss_of, reduced


class Head(nn.Module):
    """Features (batch, in_features) → logits (batch, num_classes), where `nn.Linear` was.

    A head with margins applies them only when labels are given; prediction needs none. It computes
    in float32, or in float64 for float64 features, also under autocast.

    `has_margin` says that the loss is taken of other logits than `forward` gives without labels,
    `needs_linear` that the head is made of a trained linear one, and `concentration_names` are the
    parameters that may have a weight decay of their own. `of_classes` are the parameters and
    buffers with a row for every class; `separable` says that the logits of a class, without labels,
    depend on no row but its own.
    """

    has_margin: bool = False
    needs_linear: bool = False
    separable: bool = True
    concentration_names: tuple[str, ...] = ()
    of_classes: tuple[str, ...] = ("weight",)

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        check_whole("in_features", in_features)
        check_whole("num_classes", num_classes)
        self.in_features = int(in_features)
        self.num_classes = int(num_classes)
        self.weight = nn.Parameter(torch.empty(num_classes, in_features))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # as nn.Linear does

    @classmethod
    def from_head(cls, trained: "Head") -> Self:
        """A head of this kind that goes on with the weights of another."""
        head = cls(trained.in_features, trained.num_classes).to(trained.weight.device)
        with torch.no_grad():
            head.weight.copy_(trained.weight)
        return head

    def cosine(self, x: Tensor) -> Tensor:
        """cos θ_j = x·w_j / (‖x‖‖w_j‖)."""
        return matmul(unit(x)[0], unit(self.weight.to(x.dtype))[0].mT)

    def own_cosine(self, features: Tensor, labels: Tensor) -> Tensor:
        """cos θ of every sample to the weight of its own class."""
        own = unit(self.weight.to(features.dtype)[labels])[0]
        return (unit(features)[0] * own).sum(1)

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """The head's formula; features are checked and of full precision here."""
        raise NotImplementedError

    def losses(
        self, x: Tensor, labels: Tensor, label_smoothing: float, log_prior: Tensor | None
    ) -> Tensor:
        """The loss of every sample with a hard label."""
        return _cross_entropy(self.logits(x, labels), labels, label_smoothing, log_prior)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        check_features(features, self.in_features)
        if labels is not None:
            check_labels(labels, features.shape[0], self.num_classes)
            labels = labels.long()
        with without_autocast(features):
            return self.logits(full_precision(features), labels)

    def loss(
        self,
        features: Tensor,
        target: Tensor | MixedLabels,
        *,
        sample_weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        log_prior: Tensor | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """Softmax cross-entropy on the head's logits.

        Args:
            features: (batch, in_features).
            target: labels (batch,), `MixedLabels`, or class probabilities (batch, num_classes);
                margins do not act on the last.
            sample_weight: (batch,), multiplies each sample's loss; the mean is over the batch.
            label_smoothing: ε in [0, 1).
            log_prior: (num_classes,), added to the logits: the logarithm of the class prior makes
                the loss that of logit adjustment.
            reduction: "mean", "sum" or "none".
        """
        check_features(features, self.in_features)
        batch = features.shape[0]
        if sample_weight is not None and sample_weight.shape != (batch,):
            raise ValueError(
                f"sample_weight has shape {tuple(sample_weight.shape)}; expected ({batch},)"
            )
        if log_prior is not None and log_prior.shape != (self.num_classes,):
            raise ValueError(
                f"log_prior has shape {tuple(log_prior.shape)}; expected ({self.num_classes},)"
            )
        check_from_zero("label_smoothing", label_smoothing, below=1)
        check_reduction(reduction)
        with without_autocast(features):
            x = full_precision(features)
            if log_prior is not None:
                log_prior = log_prior.to(x)

            def each(labels: Tensor) -> Tensor:
                check_target(labels, batch, self.num_classes)
                if labels.is_floating_point():
                    logits = self.logits(x, None)
                    return _cross_entropy(logits, labels.to(x), label_smoothing, log_prior)
                return self.losses(x, labels.long(), label_smoothing, log_prior)

            losses = loss_of(target, each)
            if sample_weight is not None:
                losses = losses * sample_weight.to(losses)
        return reduced(losses, reduction)

    def imprint(self, means: Tensor) -> None:
        """Point the weights to the mean features of their classes, (num_classes, in_features), but
        for what all of these have in common:

            w_j = ‖w_j‖ · unit(μ_j − (μ_j·c)c),    c = unit(Σ_j μ_j).

        Rectified features lie in a cone, and c, its axis, tells no class from another. The weights
        of a class without images, whose mean is 0, stay as they are.

        H. Qi, M. Brown, D. G. Lowe, "Low-Shot Learning with Imprinted Weights", 2018
        (arXiv:1712.07136), where c stays in.
        """
        point(self.weight, off_axis(means))

    def part(self, classes: slice) -> Self:
        """The head of some of its classes, to predict with; it shares the memory of this one."""
        shared: dict[int, Any] = {id(t): t for t in (*self.parameters(), *self.buffers())}
        heads = [module for module in self.modules() if isinstance(module, Head)]
        for head in heads:
            tensors = (getattr(head, name, None) for name in head.of_classes)
            for t in (t for t in tensors if t is not None and len(t) == head.num_classes):
                rows = t.detach()[classes]
                is_parameter = isinstance(t, nn.Parameter)
                shared[id(t)] = nn.Parameter(rows, False) if is_parameter else rows
        part = deepcopy(self, shared)
        for module in part.modules():
            if isinstance(module, Head):
                module.num_classes = len(range(self.num_classes)[classes])
        return part

    def built_options(self) -> dict[str, Any]:
        """The options that build a head of this shape, to load its weights into."""
        return {}

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, num_classes={self.num_classes}"


def off_axis(means: Tensor) -> Tensor:
    """What every class's mean feature has beside their common axis: μ_j − (μ_j·c)c."""
    c = unit(means.sum(dim=0))[0]
    return means - torch.outer(means @ c, c)


@torch.no_grad()
def point(weight: Tensor, directions: Tensor) -> None:
    """Turn weights to directions, but for those to 0; they keep their lengths."""
    way, distance = unit(directions.to(weight))
    length = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
    weight.copy_(torch.where(distance.unsqueeze(1) > 0, length * way, weight))


def _cross_entropy(
    logits: Tensor, target: Tensor, label_smoothing: float, log_prior: Tensor | None
) -> Tensor:
    if log_prior is not None:
        logits = logits + log_prior
    return F.cross_entropy(logits, target, label_smoothing=label_smoothing, reduction="none")

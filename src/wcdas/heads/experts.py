"""Several heads side by side, each on the features of its own expert; asked all, or in turn."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.checks import check_features
from wcdas.heads.base import Head
from wcdas.heads.functional.arithmetic import full_precision, unit, without_autocast

HIDDEN = 16
ALWAYS = -1e30  # a threshold that every router passes


class ExpertsHead(Head):
    """z = Σ_e w_e z_e, the mean of the experts' logits unless `expert_weights` say otherwise.

    Every expert has one of `heads`. The features of the experts stand side by side.

    Example:
        >>> from wcdas.heads import WCDASHead
        >>> head = ExpertsHead([WCDASHead(64, 10) for _ in range(3)])
        >>> head(torch.randn(8, 192)).shape, head.expert_logits(torch.randn(8, 192)).shape
        (torch.Size([8, 10]), torch.Size([3, 8, 10]))
    """

    of_classes: tuple[str, ...] = ()  # those of the experts are
    experts: Any
    expert_weights: Tensor

    def __init__(self, heads: Sequence[Head]) -> None:
        nn.Module.__init__(self)  # the weights are those of the experts
        self.sizes = [head.in_features for head in heads]
        self.in_features = sum(self.sizes)
        self.num_classes = heads[0].num_classes
        self.experts = nn.ModuleList(heads)
        self.register_buffer("expert_weights", torch.full((len(heads),), 1 / len(heads)))

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The experts' weights side by side, (num_classes, in_features)."""
        return torch.cat([head.weight for head in self.experts], dim=1)

    def expert_logits(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        """The logits of every expert, (experts, batch, num_classes)."""
        check_features(features, self.in_features)
        with without_autocast(features):
            return self._each(full_precision(features), labels)

    def parts(self, features: Tensor) -> Iterator[tuple[Head, Tensor]]:
        """Every expert, and its own features."""
        return zip(self.experts, features.split(self.sizes, dim=1), strict=True)

    def imprint(self, means: Tensor) -> None:
        for head, part in self.parts(means):
            head.imprint(part)

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        w = self.expert_weights.to(x.dtype).view(-1, 1, 1)
        return (w * self._each(x, labels)).sum(0)

    def _each(self, x: Tensor, labels: Tensor | None) -> Tensor:
        return torch.stack([head.logits(part, labels) for head, part in self.parts(x)])

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, experts={len(self.experts)}"


class RoutedExpertsHead(ExpertsHead):
    """The mean logits of the first k experts, k as the routers say, sample by sample.

    After expert k a router with two layers decides whether expert k + 1 is asked:

    r_k = W₂[top logits; relu(W_k x_k/‖x_k‖)] > threshold

    The top logits are the `top` largest means of the first k experts, at most all of them, in
    order; W₂ is the same for all routers. All experts are asked until `threshold` is set.

    Wang et al., "Long-tailed Recognition by Routing Diverse Distribution-Aware Experts", 2021
    (arXiv:2010.01809).
    """

    separable = False
    threshold: Tensor

    def __init__(self, heads: Sequence[Head], top: int = 30) -> None:
        super().__init__(heads)
        self.top = min(top, self.num_classes)
        self.hidden = nn.ModuleList(nn.Linear(size, HIDDEN) for size in self.sizes[:-1])
        self.router = nn.Linear(self.top + HIDDEN, 1)
        self.register_buffer("threshold", torch.tensor(ALWAYS))

    def means(self, each: Tensor) -> Tensor:
        """The mean logits of the first 1, 2, … experts, (experts, batch, num_classes)."""
        total, weight = torch.zeros_like(each[0]), torch.zeros_like(each[0, 0, 0])
        means = []
        for w, z in zip(self.expert_weights.to(each.dtype), each, strict=True):
            total, weight = total + w * z, weight + w
            means.append(total / weight)
        return torch.stack(means)

    def calls(self, features: Tensor, means: Tensor) -> Tensor:
        """r_k, what the routers say after all experts but the last, (experts − 1, batch)."""
        with without_autocast(features):
            parts = full_precision(features).split(self.sizes, dim=1)
            kind = self.router.weight.dtype
            said = []
            for layer, x, z in zip(self.hidden, parts[:-1], means[:-1], strict=True):
                top = z.topk(self.top, dim=1).values
                seen = torch.cat([top.to(kind), F.relu(layer(unit(x)[0].to(kind)))], dim=1)
                said.append(self.router(seen).squeeze(1))
            return torch.stack(said)

    def experts_used(self, features: Tensor) -> Tensor:
        """The number of experts each sample needs, (batch,)."""
        means = self.means(self.expert_logits(features))
        return 1 + self._goes_on(self.calls(features, means)).sum(0)

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        means = self.means(self._each(x, labels))
        z = means[0]
        for further, mean in zip(self._goes_on(self.calls(x, means)), means[1:], strict=True):
            z = torch.where(further.unsqueeze(1), mean, z)
        return z

    def _goes_on(self, calls: Tensor) -> Tensor:
        """Tell whether an expert is asked after the first 1, 2, …: once stopped, none is."""
        wanted = calls > self.threshold
        for k in range(1, len(wanted)):
            wanted[k] &= wanted[k - 1]
        return wanted

"""Several heads side by side, each on the features of its own expert."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from wcdas.checks import check_features
from wcdas.heads.base import Head
from wcdas.heads.functional.precision import full_precision, without_autocast


class ExpertsHead(Head):
    """z = Σ_e w_e z_e, the mean of the experts' logits unless `expert_weights` say otherwise.

    Args:
        heads: one for each expert. The features of the experts stand side by side.

    Example:
        >>> from wcdas.heads import WCDASHead
        >>> head = ExpertsHead([WCDASHead(64, 10) for _ in range(3)])
        >>> head(torch.randn(8, 192)).shape, head.expert_logits(torch.randn(8, 192)).shape
        (torch.Size([8, 10]), torch.Size([3, 8, 10]))
    """

    experts: Any
    expert_weights: Tensor

    def __init__(self, heads: Sequence[Head]) -> None:
        nn.Module.__init__(self)  # the weights are those of the experts
        self.sizes = [head.in_features for head in heads]
        self.in_features = sum(self.sizes)
        self.num_classes = heads[0].num_classes
        self.experts = nn.ModuleList(heads)
        self.register_buffer("expert_weights", torch.full((len(heads),), 1 / len(heads)))
        self._one: tuple[int, Tensor | None] | None = None

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The experts' weights side by side, (num_classes, in_features)."""
        return torch.cat([head.weight for head in self.experts], dim=1)

    def expert_logits(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        """The logits of every expert, (experts, batch, num_classes)."""
        check_features(features, self.in_features)
        with without_autocast(features):
            return self._each(full_precision(features), labels)

    @contextmanager
    def only(self, expert: int, log_prior: Tensor | None = None) -> Iterator[None]:
        """Inside, the head is one expert: the loss of a stage becomes that of the expert.

        Args:
            expert: its number.
            log_prior: (num_classes,), added to its logits.
        """
        self._one = expert, log_prior
        try:
            yield
        finally:
            self._one = None

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        if self._one is None:
            return self._joined(x, labels)
        head, part, log_prior = self._chosen(x)
        z = head.logits(part, labels)
        return z if log_prior is None else z + log_prior

    def losses(
        self, x: Tensor, labels: Tensor, label_smoothing: float, log_prior: Tensor | None
    ) -> Tensor:
        if self._one is None:
            return super().losses(x, labels, label_smoothing, log_prior)
        head, part, own = self._chosen(x)
        if own is not None:
            log_prior = own if log_prior is None else log_prior + own
        return head.losses(part, labels, label_smoothing, log_prior)

    def _joined(self, x: Tensor, labels: Tensor | None) -> Tensor:
        w = self.expert_weights.to(x.dtype).view(-1, 1, 1)
        return (w * self._each(x, labels)).sum(0)

    def _each(self, x: Tensor, labels: Tensor | None) -> Tensor:
        parts = zip(self.experts, x.split(self.sizes, dim=1), strict=True)
        return torch.stack([head.logits(part, labels) for head, part in parts])

    def _chosen(self, x: Tensor) -> tuple[Head, Tensor, Tensor | None]:
        assert self._one is not None
        expert, log_prior = self._one
        part = x.split(self.sizes, dim=1)[expert]
        shift = None if log_prior is None else log_prior.to(x.dtype)
        return self.experts[expert], part, shift

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, experts={len(self.experts)}"

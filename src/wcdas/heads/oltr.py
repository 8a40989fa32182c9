"""The head of OLTR: features enriched from a memory of centroids, then a cosine classifier."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.heads.base import Head
from wcdas.heads.functional.arithmetic import matmul, unit


class Switch(nn.Module):
    """A yes or no that is stored with the weights, and read without waiting for the device."""

    stored: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("stored", torch.tensor(False))
        self.on = False
        self.register_load_state_dict_post_hook(_read)

    def turn_on(self) -> None:
        self.stored.fill_(True)
        self.on = True


def _read(switch: Any, incompatible_keys: Any) -> None:
    switch.on = bool(switch.stored)


class OLTRHead(Head):
    """z_j = 16·squash(v)·ŵ_j,  v = (10/γ)(x + e ⊗ oᵀM),  squash(v) = v / (1 + ‖v‖).

    M is the memory, a centroid of every class; o = softmax(hallucinator(x)) says which of them x
    reminds of, e = tanh(T x) selects what x takes from them, and γ = min_j ‖x − M_j‖ tells how far
    x is from all that is known. While the memory is empty, the head is its hallucinator alone, any
    head: the plain classifier of the first stage.

    The paper prints the squashing with ‖v‖², which its authors call a misprint, and v without the
    factor 10 of their code.

    Liu et al., "Large-Scale Long-Tailed Recognition in an Open World", 2019 (arXiv:1904.05160),
    equations 1 to 6.

    Example:
        >>> from wcdas.heads import LinearHead
        >>> head = OLTRHead(LinearHead(in_features=64, num_classes=10))
        >>> head.fill_memory(torch.randn(50, 64), torch.arange(50) % 10)
        >>> logits = head(torch.randn(8, 64))
    """

    SCALE, REACH = 16.0, 10.0
    separable = False
    of_classes = ("weight", "memory")

    def __init__(self, hallucinator: Head) -> None:
        super().__init__(hallucinator.in_features, hallucinator.num_classes)
        self.hallucinator = hallucinator
        self.selector = nn.Linear(self.in_features, self.in_features)
        self.memory = nn.Parameter(torch.zeros(self.num_classes, self.in_features))
        self.memory_is_filled = Switch()

    @torch.no_grad()
    def fill_memory(self, features: Tensor, labels: Tensor) -> None:
        """Remember the mean feature of every class; a class without any gets the mean of these."""
        means, counts = class_means(features, labels, self.num_classes)
        known = (counts > 0).unsqueeze(1)
        means = torch.where(known, means, means.sum(0) / known.sum())
        self.memory.copy_(means)
        self.memory_is_filled.turn_on()

    def meta_embedding(self, x: Tensor) -> Tensor:
        """v: no gradient reaches the memory by this way."""
        memory = self.memory.detach().to(x.dtype)
        o = self.hallucinator.logits(x, None).softmax(1)
        e = F.linear(x, self.selector.weight.to(x.dtype), self.selector.bias.to(x.dtype)).tanh()
        nearest = memory[(memory.square().sum(1) - 2 * matmul(x.detach(), memory.mT)).argmin(1)]
        gamma = torch.linalg.vector_norm(x - nearest, dim=1, keepdim=True).clamp_min(1e-6)
        return self.REACH / gamma * (x + e * (o @ memory))

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        if not self.memory_is_filled.on:
            return self.hallucinator.logits(x, labels)
        v = self.meta_embedding(x)
        squashed = v / (1 + torch.linalg.vector_norm(v, dim=1, keepdim=True))
        return self.SCALE * matmul(squashed, unit(self.weight.to(x.dtype))[0].mT)


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Means (classes, d), 0 for a class without features, and the number of features of each."""
    sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    sums.index_add_(0, labels, features.double())
    counts = torch.bincount(labels, minlength=num_classes)
    return (sums / counts.clamp(min=1).unsqueeze(1)).to(features.dtype), counts

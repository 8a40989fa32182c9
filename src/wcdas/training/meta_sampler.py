"""The learned sampler of BALMS: class probabilities that lower the loss on balanced batches.

Classes are drawn as the argmax of ψ + Gumbel noise. A training batch takes one differentiable SGD
step of the classifier with each sample weighted by its draw (straight-through, so a weight of 1
with the slope of the softmax); the loss of the stepped classifier on a class-balanced batch of
training images gives ψ its gradient.

Ren et al., "Balanced Meta-Softmax for Long-Tailed Visual Recognition", 2020 (arXiv:2007.10740).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wcdas.data import random
from wcdas.data.samplers import Sampler
from wcdas.heads import Head
from wcdas.training.distributed import total


class MetaSampler(Sampler):
    """ψ, one logit per class, and Adam on it. The draws of an epoch follow ψ at its beginning.

    Args:
        labels: of the training images.
        num_classes: number of classes.
        lr: of ψ; the WCDAS paper tries 0.005, 0.01 and 0.05.
        device: of the classifier.
    """

    def __init__(
        self, labels: Tensor, num_classes: int, lr: float = 0.01, device: str | torch.device = "cpu"
    ) -> None:
        super().__init__(labels, num_classes)
        self.logits = torch.zeros(num_classes, device=device, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.logits], lr=lr)
        self.absent = torch.where(self.class_counts > 0, 0.0, -torch.inf).to(device)

    @property
    def probabilities(self) -> Tensor:
        return (self.logits.detach() + self.absent).softmax(0)

    def sequence(self, key: int, epoch: int, epochs: int) -> Tensor:
        key, draws = random.stream(key, epoch), torch.arange(len(self.labels))
        psi = (self.logits.detach() + self.absent).cpu()
        classes = (psi + self._gumbel(key, draws)).argmax(1)
        image = random.bits(random.stream(key, 1), draws, 1)[:, 0]
        return self.by_class[self.starts[classes] + image % self.class_counts[classes]]

    def update(
        self,
        head: Head,
        lr: float,
        features: Tensor,
        labels: Tensor,
        positions: Tensor,
        key: int,
        balanced: tuple[Tensor, Tensor],
        world: int = 1,
    ) -> None:
        """One step of ψ; `key` and `positions` are those of the sequence the batch is part of."""
        soft = (self.logits + self.absent + self._gumbel(key, positions)).softmax(1)
        chance = soft.gather(1, labels.unsqueeze(1)).squeeze(1)
        drawn = 1 + chance - chance.detach()
        module = _HeadLoss(head)
        named = module.named_parameters()
        parameters: dict[str, Tensor] = {k: v for k, v in named if v.requires_grad}
        inner = functional_call(module, parameters, (features, labels, drawn))
        slopes = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
        stepped = {k: v - lr * g for (k, v), g in zip(parameters.items(), slopes, strict=True)}
        outer = functional_call(module, stepped, balanced)
        (slope,) = torch.autograd.grad(outer, [self.logits])
        self.logits.grad = total(slope, world) / world
        self.optimizer.step()

    def _gumbel(self, key: int, positions: Tensor) -> Tensor:
        draws = random.uniform(random.stream(key, 0), positions, self.num_classes)
        return -(-(draws + 2.0**-25).log()).log()

    def state_dict(self) -> dict[str, Any]:
        return {"logits": self.logits.detach(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.logits.copy_(state["logits"])
        self.optimizer.load_state_dict(state["optimizer"])


class _HeadLoss(nn.Module):
    """The loss as a module's forward, for `functional_call`."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.head.loss(features, labels, sample_weight=weight)

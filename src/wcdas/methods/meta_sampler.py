"""The learned sampler of BALMS: class probabilities that lower the loss on balanced batches.

Classes are drawn as the argmax of ψ + Gumbel noise. A training batch takes one differentiable SGD
step of the classifier with each sample weighted by its draw (straight-through, so a weight of 1
with the slope of the softmax); the loss of the stepped classifier on a class-balanced batch of
training images gives ψ its gradient.

Ren et al., "Balanced Meta-Softmax for Long-Tailed Visual Recognition", 2020 (arXiv:2007.10740).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from wcdas import rng
from wcdas.checks import check_positive
from wcdas.data.samplers import Sampler
from wcdas.heads import Head
from wcdas.processes import mean


class MetaSampler(Sampler):
    """ψ, one logit per class, and Adam on it. The draws of an epoch follow ψ at its beginning,
    which is part of the state, so that an epoch can be resumed in its middle.

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
        check_positive("sampler_options.lr", lr)
        self.logits = torch.zeros(num_classes, device=device, requires_grad=True)
        self.at_beginning = self.logits.detach().clone()
        self.noise_key = torch.zeros((), dtype=torch.int64, device=device)
        self.optimizer = torch.optim.Adam([self.logits], lr=lr, capturable=self.logits.is_cuda)
        self.absent = torch.where(self.class_counts > 0, 0.0, -torch.inf).to(device)

    @property
    def probabilities(self) -> Tensor:
        return (self.logits.detach() + self.absent).softmax(0)

    def class_probabilities(self, epoch: int, epochs: int) -> Tensor:
        return (self.at_beginning + self.absent).softmax(0).double().cpu()

    def begin_epoch(self) -> None:
        """Let the draws follow ψ as it is now."""
        self.at_beginning = self.logits.detach().clone()

    def sequence(self, key: int, epoch: int, epochs: int) -> Tensor:
        key, draws = rng.stream(key, epoch), torch.arange(len(self.labels))
        noise_key = rng.stream(key, 0)
        self.noise_key.fill_(noise_key)
        psi = (self.at_beginning + self.absent).cpu()
        classes = (psi + self._gumbel(noise_key, draws)).argmax(1)
        image = rng.bits(rng.stream(key, 1), draws, 1)[:, 0]
        return self.by_class[self.starts[classes] + image % self.class_counts[classes]]

    def update(
        self,
        head: Head,
        lr: float | Tensor,
        features: Tensor,
        labels: Tensor,
        positions: Tensor,
        balanced: tuple[Tensor, Tensor],
        log_prior: Tensor | None = None,
    ) -> None:
        """One step of ψ; of several processes each hands in its slices, and all take the same step.

        Args:
            head: the classifier, left as it is.
            lr: of its step.
            features: of the batch.
            labels: of the batch.
            positions: of the batch in the sequence that was asked for last.
            balanced: features and labels of a class-balanced batch.
            log_prior: of the loss that the classifier is trained with, added to the logits.
        """
        noise = self._gumbel(self.noise_key, positions)
        soft = (self.logits + self.absent + noise).softmax(1)
        chance = soft.gather(1, labels.unsqueeze(1)).squeeze(1)
        drawn = 1 + chance - chance.detach()
        module = _HeadLoss(head)
        named = module.named_parameters()
        parameters: dict[str, Tensor] = {k: v for k, v in named if v.requires_grad}
        inner = functional_call(module, parameters, (features, labels, drawn, log_prior))
        slopes = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
        stepped: dict[str, Tensor] = {
            k: (v - lr * mean(g)).detach().requires_grad_()
            for (k, v), g in zip(parameters.items(), slopes, strict=True)
        }
        outer = functional_call(module, stepped, balanced)
        to_stepped = torch.autograd.grad(outer, list(stepped.values()))
        # d outer / dψ = (d outer / d stepped) · (d stepped / dψ), and stepped = θ − lr · slopes(ψ)
        (slope,) = torch.autograd.grad(slopes, [self.logits], [-lr * mean(g) for g in to_stepped])
        self.logits.grad = mean(slope)
        self.optimizer.step()

    def _gumbel(self, key: int | Tensor, positions: Tensor) -> Tensor:
        draws = rng.uniform(key, positions, self.num_classes)  # at most 1 − 2⁻²⁴, but 0 as well
        return -(-draws.clamp_min(2.0**-25).log()).log()

    def state_dict(self) -> dict[str, Any]:
        return {
            "logits": self.logits.detach(),
            "at_beginning": self.at_beginning,
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.logits.copy_(state["logits"])
            self.at_beginning.copy_(state["at_beginning"])
        self.optimizer.load_state_dict(state["optimizer"])


class _HeadLoss(nn.Module):
    """Cross-entropy as a module's forward, for `functional_call`.

    On the logits, since a head's own loss may have first derivatives only.
    """

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(
        self,
        features: Tensor,
        labels: Tensor,
        weight: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        logits = self.head(features, labels)
        logits = logits if log_prior is None else logits + log_prior
        losses = F.cross_entropy(logits, labels, reduction="none")
        return (losses if weight is None else weight * losses).mean()

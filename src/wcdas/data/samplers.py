"""Samplers: which training images an epoch shows, in which order.

An epoch is always N draws, N the number of training images, and its sequence is a pure function
of (key, epoch, epochs): to resume in the middle of an epoch is to slice it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from wcdas import rng
from wcdas.checks import check_positive, check_whole, create
from wcdas.errors import InputError
from wcdas.heads import Head
from wcdas.processes import mean


class Sampler:
    """Base of the samplers; one overrides `sequence(key, epoch, epochs) → indices (N,)`.

    `prior` is the class prior of what is drawn: "train", "uniform", or "none" where it is neither.
    A `learned` sampler is updated at every step and has a class-balanced batch beside its own.
    """

    prior: str = "none"
    learned: bool = False

    def __init__(self, labels: Tensor, num_classes: int) -> None:
        if labels.dim() != 1 or len(labels) == 0:
            raise InputError(f"labels have shape {tuple(labels.shape)}; expected (images,)")
        self.labels = labels.long().cpu()
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= num_classes:
            wrong = low if low < 0 else high
            raise InputError(f"label {wrong} is out of range; expected 0 to {num_classes - 1}")
        self.num_classes = num_classes
        self.class_counts = torch.bincount(self.labels, minlength=num_classes)
        self.by_class = self.labels.argsort(stable=True)  # images of class 0, of class 1, …
        self.starts = self.class_counts.cumsum(0) - self.class_counts

    def sequence(self, key: int, epoch: int, epochs: int) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not define sequence()")

    def class_probabilities(self, epoch: int, epochs: int) -> Tensor:
        """Return the share of each class in the draws of an epoch, float64 (C,) of sum one."""
        return self.class_counts.double() / len(self.labels)


class InstanceBalancedSampler(Sampler):
    """Every image once an epoch, in random order."""

    prior = "train"

    def sequence(self, key: int, epoch: int, epochs: int) -> Tensor:
        return rng.permutation(rng.stream(key, epoch), len(self.labels))


class ClassProbabilitySampler(Sampler):
    """Each draw picks a class by its probability, then one of its images, all independently."""

    def sequence(self, key: int, epoch: int, epochs: int) -> Tensor:
        draws = torch.arange(len(self.labels))
        cumulative = self.class_probabilities(epoch, epochs).cumsum(0)
        u = rng.uniform_double(rng.stream(key, epoch, 0), draws, 1)[:, 0]
        classes = torch.searchsorted(cumulative / cumulative[-1], u, right=True)
        image = rng.bits(rng.stream(key, epoch, 1), draws, 1)[:, 0]
        return self.by_class[self.starts[classes] + image % self.class_counts[classes]]


class ClassBalancedSampler(ClassProbabilitySampler):
    """p = 1/C for every class with images."""

    prior = "uniform"

    def class_probabilities(self, epoch: int, epochs: int) -> Tensor:
        present = (self.class_counts > 0).double()
        return present / present.sum()


class SquareRootSampler(ClassProbabilitySampler):
    """p ∝ √n."""

    def class_probabilities(self, epoch: int, epochs: int) -> Tensor:
        roots = self.class_counts.double().sqrt()
        return roots / roots.sum()


class ProgressivelyBalancedSampler(ClassBalancedSampler):
    """p = (1 − t)·n/N + t/C, with t from 0 in the first epoch to 1 in the last.

    A single epoch is class-balanced. B. Kang, S. Xie, M. Rohrbach, Z. Yan, A. Gordo, J. Feng,
    Y. Kalantidis, 2020, arXiv:1910.09217, equation 2.
    """

    prior = "none"

    def class_probabilities(self, epoch: int, epochs: int) -> Tensor:
        t = epoch / (epochs - 1) if epochs > 1 else 1.0
        n = self.class_counts.double()
        return (1 - t) * n / n.sum() + t * super().class_probabilities(epoch, epochs)


class ClassAwareSampler(ClassBalancedSampler):
    """Goes round the classes in random order and shows `per_class` images of each in a row.

    Every round has its own order. A class shows all its images, in random order, before any of
    them again. L. Shen, Z. Lin, Q. Huang, 2016, arXiv:1512.05830, section 3.2.
    """

    def __init__(self, labels: Tensor, num_classes: int, per_class: int = 4) -> None:
        super().__init__(labels, num_classes)
        check_whole("per_class", per_class)
        self.per_class = per_class

    def sequence(self, key: int, epoch: int, epochs: int) -> Tensor:
        n, k = len(self.labels), self.per_class
        classes = self.class_counts.nonzero()[:, 0]
        rounds = -(-n // (k * len(classes)))
        order = rng.bits(rng.stream(key, epoch, 0), torch.arange(rounds), len(classes))
        shown = classes[order.argsort(dim=1, stable=True)].repeat_interleave(k, dim=1)
        ordinal = torch.arange(k).repeat(len(classes)) + k * torch.arange(rounds)[:, None]
        shuffled, first = self._shuffled_passes(rng.stream(key, epoch, 1), rounds * k)
        return shuffled[first[shown] + ordinal].flatten()[:n]

    def _shuffled_passes(self, key: int, length: int) -> tuple[Tensor, Tensor]:
        """For every class, passes over its images that last for `length` draws, one after another.

        Returns the images and where each class begins.
        """
        counts = self.class_counts
        passes = torch.where(counts > 0, -(-length // counts.clamp(min=1)), 0)
        sizes = passes * counts
        first = sizes.cumsum(0) - sizes
        classes = torch.arange(self.num_classes).repeat_interleave(sizes)
        within = torch.arange(int(sizes.sum())) - first[classes]
        turn = (passes.cumsum(0) - passes)[classes] + within // counts[classes]  # (class, pass)
        by_chance = rng.permutation(key, len(within))
        order = by_chance[turn[by_chance].argsort(stable=True)]
        return self.by_class[self.starts[classes] + within % counts[classes]][order], first


class MetaSampler(Sampler):
    """Learns how often to draw each class (BALMS, Ren et al., 2020).

    An image is drawn in proportion to σ(w_y), w one weight per class, that is class j in proportion
    to n_j·σ(w_j): w = 0, the start, is instance-balanced. The class is the argmax of log n_j +
    log σ(w_j) + Gumbel noise. A training batch takes one differentiable SGD step of the classifier
    with each sample weighted by its draw (straight-through, so a weight of 1 with the slope of the
    softmax); the loss of the stepped classifier on a class-balanced batch of training images gives
    w its gradient, and Adam its step. The draws of an epoch follow w at its beginning, which is
    part of the state, so that an epoch can be resumed in its middle. `lr` is that of w: 0.01 in the
    authors' code; the WCDAS paper tries 0.005, 0.01 and 0.05.

    Ren et al., "Balanced Meta-Softmax for Long-Tailed Visual Recognition", 2020
    (arXiv:2007.10740), after `data/MetaSampler.py` of jiawei-ren/BalancedMetaSoftmax-Classification
    with its `init_pow` of 0. There the softmax behind the slope is over images, here over classes;
    the draws are the same.
    """

    learned = True

    def __init__(
        self, labels: Tensor, num_classes: int, lr: float = 0.01, device: str | torch.device = "cpu"
    ) -> None:
        super().__init__(labels, num_classes)
        check_positive("sampler_options.lr", lr)
        self.w = torch.zeros(num_classes, device=device, requires_grad=True)
        self.at_beginning = self.w.detach().clone()
        self.noise_key = torch.zeros((), dtype=torch.int64, device=device)
        self.optimizer = torch.optim.Adam([self.w], lr=lr, capturable=self.w.is_cuda)
        self.log_counts = self.class_counts.double().log().float().to(device)

    def class_logits(self, w: Tensor) -> Tensor:
        """log n_j + log σ(w_j), −∞ for a class without images."""
        return self.log_counts + F.logsigmoid(w)

    @property
    def probabilities(self) -> Tensor:
        return self.class_logits(self.w.detach()).softmax(0)

    def class_probabilities(self, epoch: int, epochs: int) -> Tensor:
        return self.class_logits(self.at_beginning).double().softmax(0).cpu()

    def begin_epoch(self) -> None:
        """Let the draws follow w as it is now."""
        self.at_beginning = self.w.detach().clone()

    def sequence(self, key: int, epoch: int, epochs: int) -> Tensor:
        key, draws = rng.stream(key, epoch), torch.arange(len(self.labels))
        noise_key = rng.stream(key, 0)
        self.noise_key.fill_(noise_key)
        logits = self.class_logits(self.at_beginning).cpu()
        classes = (logits + self._gumbel(noise_key, draws)).argmax(1)
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
        """One step of w; of several processes each hands in its slices, and all take the same step.

        The classifier is left as it is; `lr` is of its step, `log_prior` of the loss that it is
        trained with. Positions are those in the sequence that was asked for last.
        """
        noise = self._gumbel(self.noise_key, positions)
        soft = (self.class_logits(self.w) + noise).softmax(1)
        chance = soft.gather(1, labels.unsqueeze(1)).squeeze(1)
        drawn = 1 + chance - chance.detach()
        named = head.named_parameters()
        parameters: dict[str, Tensor] = {k: v for k, v in named if v.requires_grad}
        # On the logits, since a head's own loss may have first derivatives only.
        logits = functional_call(head, parameters, (features, labels))
        logits = logits if log_prior is None else logits + log_prior
        inner = (drawn * F.cross_entropy(logits, labels, reduction="none")).mean()
        slopes = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
        stepped: dict[str, Tensor] = {
            k: (v - lr * mean(g)).detach().requires_grad_()
            for (k, v), g in zip(parameters.items(), slopes, strict=True)
        }
        logits = functional_call(head, stepped, balanced)
        outer = F.cross_entropy(logits, balanced[1], reduction="none").mean()
        to_stepped = torch.autograd.grad(outer, list(stepped.values()))
        # d outer / dw = (d outer / d stepped) · (d stepped / dw), and stepped = θ − lr · slopes(w)
        (slope,) = torch.autograd.grad(slopes, [self.w], [-lr * mean(g) for g in to_stepped])
        self.w.grad = mean(slope)
        self.optimizer.step()

    def _gumbel(self, key: int | Tensor, positions: Tensor) -> Tensor:
        draws = rng.uniform(key, positions, self.num_classes)  # at most 1 − 2⁻²⁴, but 0 as well
        return -(-draws.clamp_min(2.0**-25).log()).log()

    def state_dict(self) -> dict[str, Any]:
        return {
            "w": self.w.detach(),
            "at_beginning": self.at_beginning,
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.w.copy_(state["w"])
            self.at_beginning.copy_(state["at_beginning"])
        self.optimizer.load_state_dict(state["optimizer"])


SAMPLERS: dict[str, type[Sampler]] = {
    "instance-balanced": InstanceBalancedSampler,
    "class-balanced": ClassBalancedSampler,
    "square-root": SquareRootSampler,
    "progressively-balanced": ProgressivelyBalancedSampler,
    "class-aware": ClassAwareSampler,
    "meta": MetaSampler,
}


def create_sampler(
    name: str, labels: Tensor, num_classes: int, device: str | torch.device = "cpu", **options: Any
) -> Sampler:
    """Build a sampler by name; a learned one stands on the device of the classifier.

    >>> sampler = create_sampler("class-balanced", torch.tensor([0, 0, 0, 1]), 2)
    >>> sampler.sequence(key=1, epoch=0, epochs=10).shape
    torch.Size([4])
    """
    context = {"labels": labels, "num_classes": num_classes, "device": device}
    return create("sampler", SAMPLERS, name, options, **context)


def whole_batches(sequence: Tensor, batch_size: int, world: int = 1) -> list[Tensor]:
    """Return the global batches of a sequence; what does not fill the last one is left out.

    Each divides into `world` equal slices. A sequence shorter than a batch is one batch; with
    several processes it loses the few draws that cannot be shared out equally.
    """
    if batch_size < 1 or batch_size % world:
        raise InputError(
            f"batch size {batch_size} does not divide into {world} equal slices; "
            f"expected a multiple of {world}, the number of processes"
        )
    if len(sequence) < batch_size:
        batch_size = len(sequence) // world * world
    if batch_size == 0:
        raise InputError(f"{len(sequence)} images are too few for {world} processes")
    return list(sequence[: len(sequence) // batch_size * batch_size].split(batch_size))

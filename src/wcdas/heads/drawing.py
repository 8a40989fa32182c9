"""Some of a million classes in a step of training: those of its labels, and a share of the others.

A drawn class that is no label's stands for 1/r of its kind, with r the share:

    Σ_j exp z_j ≈ Σ_labels exp z_j + Σ_drawn exp(z_j − log r),

whose mean over the draws is right. Nothing of the other classes is computed, changed or remembered:
the optimizer steps on the rows of the drawn ones alone. After X. An et al., "Killing Two Birds with
One Stone: Efficient and Robust Training of Face Recognition CNNs by Partial FC", 2022
(arXiv:2203.15565), where the logits stay as they are.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from wcdas import rng


class Drawing(nn.Module):
    """Draws classes; which ones depends on the seed, the step and the class alone.

    Args:
        share: of the classes that are no label's.
        seed: of the draws.
    """

    key: Tensor

    def __init__(self, share: float, seed: int) -> None:
        super().__init__()
        self.share, self.is_stepped = share, False
        self.register_buffer("key", torch.tensor(seed))
        self.rows = self.is_label = torch.zeros(0, dtype=torch.int64)
        self.whole: Mapping[str, nn.Parameter] = {}
        self.drawn: dict[str, Tensor] = {}  # the rows of these parameters

    def begin(self, first: int, labels: Tensor, parameters: Mapping[str, nn.Parameter]) -> None:
        """Draw the classes of a step.

        Args:
            first: the number of the class that the first rows of the parameters belong to.
            labels: rows that are drawn in any case; −1 is none.
            parameters: with a row for each class, by name.
        """
        if self.drawn:
            raise RuntimeError(
                "the classes of a step are drawn already; call optimizer.step() after each loss, "
                "or take the loss under torch.no_grad()"
            )
        if not self.is_stepped:
            raise RuntimeError(
                f"negatives is {self.share:g}, but no optimizer knows of it; call "
                "head.step_with(optimizer) once it is made"
            )
        count = len(next(iter(parameters.values())))
        self.key += 1
        classes = torch.arange(first, first + count, device=labels.device)
        chosen = rng.uniform(self.key, classes, 1)[:, 0] < self.share
        self.is_label = torch.zeros_like(chosen)
        self.is_label[labels[labels >= 0]] = True
        self.rows = (chosen | self.is_label).nonzero()[:, 0]
        self.whole = parameters
        self.drawn = {
            name: parameter.detach()[self.rows].requires_grad_()
            for name, parameter in parameters.items()
        }

    def places(self, labels: Tensor) -> Tensor:
        """Labels by their places among the drawn rows; −1 stays."""
        place = torch.cumsum(torch.zeros_like(self.is_label).index_fill(0, self.rows, True), 0) - 1
        return torch.where(labels >= 0, place[labels], -1) if len(place) else labels

    def offset(self, log_prior: Tensor | None, like: Tensor) -> Tensor:
        """What is added to the logits of the drawn rows."""
        stands_for = like.new_full((len(self.rows),), -math.log(self.share))
        stands_for[self.is_label[self.rows]] = 0
        return stands_for if log_prior is None else log_prior[self.rows] + stands_for

    def step_with(self, optimizer: torch.optim.Optimizer) -> None:
        """Let every step of an optimizer see the drawn rows, and nothing else of the classes."""
        steps: list[Any] = []

        def begin(*_: Any) -> None:
            steps.append(self._alone(optimizer))
            steps[-1].__enter__()

        def end(*_: Any) -> None:
            steps.pop().__exit__(None, None, None)

        optimizer.register_step_pre_hook(begin)
        optimizer.register_step_post_hook(end)
        self.is_stepped = True

    @contextmanager
    def _alone(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Parameters, gradients and what the optimizer remembers are those of the drawn rows."""
        kept = []
        for name, drawn in self.drawn.items():
            parameter = self.whole[name]
            state, values = optimizer.state[parameter], parameter.data
            of_rows = {key: value for key, value in state.items() if value.shape == values.shape}
            kept.append((parameter, values, state, of_rows))
            state |= {key: value[self.rows] for key, value in of_rows.items()}
            parameter.data, parameter.grad = drawn.detach(), drawn.grad
        yield
        for parameter, values, state, of_rows in kept:
            for key, value in state.items():
                if value.shape == parameter.shape:  # some remember nothing before the first step
                    before = of_rows.get(key, torch.zeros_like(values))
                    state[key] = before.index_copy_(0, self.rows, value)
            parameter.data = values.index_copy_(0, self.rows, parameter.data)
            parameter.grad = None
        self.drawn = {}

"""Numbers of images and classes, computed some of them at a time: their matrix need not exist."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import torch
from torch import Tensor

from wcdas.errors import InputError
from wcdas.heads import Head, ShardedWCDASHead
from wcdas.processes import of_all

KEPT = 2**26  # numbers of a matrix that is kept; a larger one is computed when it is asked for
NUMBERS = 2**22  # computed at a time
ROWS = 1024  # at a time, which share what is done to the weights of a class
NO_CLASS = torch.iinfo(torch.int64).max

Summary = tuple[Tensor, ...]


@dataclass(frozen=True)
class Scores:
    """A number for every image and class, (images, classes).

    Args:
        inputs: a row for every image.
        num_classes: how many classes there are.
        parts: some classes each, in order, and what computes their columns from rows of inputs.
        rows: of inputs at a time.
        device: where they are computed.
        spread: whether other processes have other classes; then all have to ask together.
        between: called after the rows of a time.
    """

    inputs: Tensor
    num_classes: int
    parts: Sequence[tuple[slice, Callable[[Tensor], Tensor]]]
    rows: int
    device: torch.device
    spread: bool = False
    between: Callable[[], object] = lambda: None

    dtype = torch.float32

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.inputs), self.num_classes

    @property
    def whole_rows(self) -> bool:
        """Whether all classes are computed together."""
        return len(self.parts) == 1 and not self.spread

    def __truediv__(self, by: float) -> "Scores":
        return self._each(lambda _, z: z / by)

    def __add__(self, of_classes: Tensor) -> "Scores":
        return self._each(lambda classes, z: z + of_classes[classes])

    def _each(self, change: Callable[[slice, Tensor], Tensor]) -> "Scores":
        def changed(classes: slice, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
            return change(classes, part(x))

        parts = [(classes, partial(changed, classes, part)) for classes, part in self.parts]
        return replace(self, parts=parts)

    @torch.no_grad()
    def summary(
        self,
        of_part: Callable[[Tensor, slice, slice], Summary],
        merged: Callable[[Summary, Summary], Summary],
    ) -> Summary:
        """A few numbers of every row, on the CPU.

        Args:
            of_part: a block, its rows and its classes → tensors with these rows.
            merged: what is said of some classes, and of others after them → of them all.
        """
        images = len(self.inputs)
        whole: Summary = ()
        for start in range(0, max(1, images), self.rows):
            rows = slice(start, min(start + self.rows, images))
            x = self.inputs[rows].to(self.device)
            parts = (of_part(part(x).float(), rows, classes) for classes, part in self.parts)
            said = reduce(merged, parts)
            # At once for all rows: small tensors between large ones would leave holes in memory.
            whole = whole or tuple(column.new_empty(images, *column.shape[1:]) for column in said)
            for column, new in zip(whole, said, strict=True):
                column[rows] = new
            self.between()
        if self.spread:
            every = zip(*(of_all(column[None]).unbind(0) for column in whole), strict=True)
            whole = reduce(merged, every)
        return tuple(column.cpu() for column in whole)


def as_scores(logits: Tensor | Scores) -> Scores:
    """Logits that are there, in rows of a few million numbers: what is made of them stays small."""
    if isinstance(logits, Scores):
        return logits
    if not logits.is_floating_point() or logits.dim() != 2 or logits.shape[1] == 0:
        raise InputError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; "
            "expected floating-point numbers (images, classes)"
        )
    classes = logits.shape[1]
    parts = [(slice(0, classes), Tensor.detach)]
    return Scores(logits, classes, parts, max(NUMBERS // classes, 1), torch.device("cpu"))


def logits_of(head: Head, features: Tensor) -> Scores:
    """Logits of features: where they are few computed now, else when they are asked for."""
    if is_kept(head, len(features)):
        with torch.no_grad():
            return as_scores(head(features.to(next(head.parameters()).device)).float().cpu())
    return scores_of(head, features, Head.__call__, head.separable)


def is_kept(head: Head, images: int) -> bool:
    """Whether the matrix of a head's logits is small enough to be kept."""
    return images * head.num_classes <= KEPT and not isinstance(head, ShardedWCDASHead)


def scores_of(
    head: Head, features: Tensor, formula: Callable[[Head, Tensor], Tensor], separable: bool = True
) -> Scores:
    """What a formula gives of a head and features; `separable` says that the numbers of a class
    depend on no other."""
    classes = head.num_classes
    rows = min(ROWS, max(len(features), 1))
    device, first, mine, spread = next(head.parameters()).device, 0, head, False
    if isinstance(head, ShardedWCDASHead):
        first, mine, spread = head.classes.start, head.shard, True
    if not separable:
        rows = max(1, min(rows, NUMBERS // classes))
        whole = [(slice(0, classes), partial(formula, head))]
        return Scores(features, classes, whole, rows, device)
    parts = []
    width = max(1, NUMBERS // rows)
    for start in range(0, max(1, mine.num_classes), width):
        own = slice(start, min(start + width, mine.num_classes))
        place = slice(first + own.start, first + own.stop)
        parts.append((place, partial(formula, mine.part(own))))
    return Scores(features, classes, parts, rows, device, spread)


def best(z: Tensor, first: int, k: int) -> Summary:
    """The k highest of every row and their classes, which count from `first` on.

    Of equal ones the lower class comes first. Where there are fewer than k classes, the rest are
    −∞ of none.
    """
    values, classes = z.topk(min(k + 1, z.shape[1]), dim=1)
    if z.shape[1] > k:  # of equal ones topk takes any
        tied = values[:, k - 1] == values[:, k]
        if tied.any():
            classes[tied] = z[tied].sort(dim=1, descending=True, stable=True).indices[:, : k + 1]
        values, classes = values[:, :k], classes[:, :k]
    missing = len(z), k - values.shape[1]
    values = torch.cat([values, values.new_full(missing, -torch.inf)], 1)
    return _in_order(values, torch.cat([classes + first, classes.new_full(missing, NO_CLASS)], 1))


def best_of(one: Summary, other: Summary) -> Summary:
    """The k highest of two lists of k."""
    values, classes = (torch.cat(pair, 1) for pair in zip(one, other, strict=True))
    k = one[0].shape[1]
    return tuple(column[:, :k] for column in _in_order(values, classes))


def _in_order(values: Tensor, classes: Tensor) -> Summary:
    """The highest first, of equal ones the lower class."""
    classes, order = classes.sort(1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, classes.gather(1, order)

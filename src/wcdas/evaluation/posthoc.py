"""Corrections of a trained classifier that need no training: pure functions on tensors."""

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from wcdas.errors import InputError
from wcdas.evaluation.metrics import evaluate


def shift_prior(logits: Tensor, from_prior: Tensor, to_prior: Tensor) -> Tensor:
    """z_j + log π_to(j) − log π_from(j): what the logits would be under another class prior.

    Bayes' rule, p(j|x) ∝ p(x|j) π(j), where z are log-probabilities under `from_prior`. Divide by
    a temperature before, not after. A class of target prior 0 is excluded (−∞).

    Example:
        >>> shift_prior(torch.zeros(1, 2), torch.tensor([0.5, 0.5]), torch.tensor([0.8, 0.2]))
        tensor([[ 0.4700, -0.9163]])
    """
    source = as_prior(from_prior, logits.shape[-1], "the prior the logits were trained under")
    target = as_prior(to_prior, logits.shape[-1], "the target prior")
    if (source == 0).any():
        missing = int((source == 0).nonzero()[0])
        raise InputError(
            f"the prior the logits were trained under is 0 for class {missing}; expected above 0"
        )
    return logits + (target.log() - source.log()).to(logits)


def adjust_logits(logits: Tensor, class_counts: Sequence[int] | Tensor, tau: float = 1.0) -> Tensor:
    """z_j − τ log π_j, π_j = n_j/N: logit adjustment after training.

    Menon et al., 2020 (arXiv:2007.07314). τ = 1 is `shift_prior` from training to uniform, up to
    a constant.
    """
    prior = as_prior(torch.as_tensor(class_counts), logits.shape[-1], "class_counts")
    if (prior == 0).any():
        raise InputError("logit adjustment needs a training image of every class")
    return logits - tau * prior.log().to(logits)


def max_norm(weight: Tensor, limit: float) -> Tensor:
    """w_j scaled down to the norm `limit` where it is longer: MaxNorm as a projection.

    Alshammari et al., 2022 (arXiv:2203.14197).
    """
    if not limit > 0:
        raise InputError(f"the limit of MaxNorm is {limit}; expected a number above 0")
    return weight.renorm(p=2, dim=0, maxnorm=limit)


def choose(values: Iterable[float], logits_of: Callable[[float], Tensor], labels: Tensor) -> float:
    """The value (a τ, a limit) with the highest balanced accuracy on held-out images.

    Args:
        values: to try; of equally good ones the first is taken.
        logits_of: the held-out logits under a value.
        labels: of the held-out images.

    Example:
        >>> logits, labels = torch.tensor([[1.0, 0.5], [1.0, 0.0]]), torch.tensor([1, 0])
        >>> choose([0.0, 0.3, 1.0], lambda tau: adjust_logits(logits, [90, 10], tau), labels)
        0.3
    """
    if len(labels) == 0:
        raise InputError("there are no held-out images to choose on; hold some out of training")
    accuracy = {}
    for value in values:
        logits = logits_of(value)
        accuracy[value] = evaluate(logits, labels, torch.ones(logits.shape[1]))["balanced_accuracy"]
    if not accuracy:
        raise InputError("there are no values to choose from; expected at least one")
    return max(accuracy, key=accuracy.__getitem__)


def read_prior(given: str, class_names: Sequence[str], class_counts: Tensor) -> Tensor:
    """The class prior a user asks for, as float64 probabilities (classes,).

    Args:
        given: "uniform", "train" (the training images), or a file with one number a line in the
            order of the classes, or lines `class,number` in any order. Any scale will do.
        class_names: in label order.
        class_counts: training images per class.
    """
    n_classes = len(class_names)
    if given == "uniform":
        return torch.full((n_classes,), 1 / n_classes, dtype=torch.float64)
    if given == "train":
        return as_prior(class_counts, n_classes, "the training prior")
    path = Path(given)
    if not path.is_file():
        raise InputError(
            f"prior {given!r} is neither 'uniform' nor 'train' nor a file; "
            "expected one of them, the file with lines `class,number`"
        )
    lines = read_lines(path, given)
    named = any(len(line.cells) > 1 for line in lines)
    numbers = [number(line, named, given) for line in lines]
    if named:
        numbers = in_label_order([line.cells[0] for line in lines], numbers, class_names, given)
    return as_prior(numbers, n_classes, f"prior file {given!r}")


class Line(NamedTuple):
    """The cells of a line of a file, and its number, from 1 on."""

    at: int
    cells: list[str]


def read_lines(path: Path, given: str) -> list[Line]:
    """The lines of a CSV file that are not empty."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            return [Line(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (UnicodeDecodeError, csv.Error):
        raise InputError(
            f"prior file {given!r} is not text; expected lines `class,number`"
        ) from None


def number(line: Line, named: bool, given: str) -> float:
    """The number of a line, which is of at least 0."""
    where = f"prior file {given!r}, line {line.at}:"
    if named and len(line.cells) != 2:
        raise InputError(f"{where} got {','.join(line.cells)!r}; expected `class,number`")
    text = line.cells[-1]
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where} got {text!r}; expected a number") from None
    if not 0 <= value < math.inf:
        raise InputError(f"{where} got {text}; expected a number of at least 0")
    return value


def in_label_order(
    names: Sequence[str], numbers: Sequence[float], class_names: Sequence[str], given: str
) -> list[float]:
    by_name: dict[str, float] = {}
    for name, value in zip(names, numbers, strict=True):
        if name in by_name:
            raise InputError(f"prior file {given!r} names class {name!r} twice; expected once")
        by_name[name] = value
    for name in class_names:
        if name not in by_name:
            raise InputError(f"prior file {given!r} lacks class {name!r}; expected every class")
    for name in by_name:
        if name not in set(class_names):
            raise InputError(f"prior file {given!r} names {name!r}, which is not a class")
    return [by_name[name] for name in class_names]


def as_prior(numbers: Sequence[float] | Tensor, n_classes: int, what: str) -> Tensor:
    """Numbers of any scale as probabilities, refused where they cannot be."""
    prior = torch.as_tensor(numbers).detach().double()
    if prior.shape != (n_classes,):
        raise InputError(
            f"{what} has {prior.numel()} numbers; expected one for each of {n_classes}"
        )
    if not prior.isfinite().all() or (prior < 0).any() or prior.sum() <= 0:
        raise InputError(f"{what} must hold numbers of at least 0, not all 0")
    return prior / prior.sum()

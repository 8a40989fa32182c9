"""Checks of what users hand in: one line that names the input, the expectation and the remedy.

Shapes and types are always checked. Values are read in eager mode on a CPU only: reading one
would break `torch.compile`, `torch.export` and `vmap`, and would stall a CUDA device.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from numbers import Integral
from typing import Any, TypeVar

import torch
from torch import Tensor

from wcdas.errors import InputError, unknown

T = TypeVar("T")


def need(extra: str, *packages: str) -> None:
    """Refuse missing packages in one line that says what to install."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(
            f"this needs {' and '.join(missing)}, which a plain installation leaves out; "
            f"install with: pip install 'wcdas[{extra}]'"
        )


def values_are_readable(tensor: Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def check_features(features: Tensor, in_features: int) -> None:
    if not features.is_floating_point():
        raise TypeError(f"features are {features.dtype}; expected a floating-point tensor")
    if features.dim() != 2 or features.shape[1] != in_features:
        raise ValueError(
            f"features have shape {tuple(features.shape)}; expected (batch, {in_features}). "
            "Pool and flatten feature maps first"
        )
    if values_are_readable(features) and not features.isfinite().all():
        row = int((~features.isfinite()).any(dim=1).nonzero()[0])
        raise ValueError(f"features contain NaN or infinity, first in row {row}; expected finite")


def check_labels(labels: Tensor, batch: int, num_classes: int) -> None:
    if labels.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"labels are {labels.dtype}; expected integer class indices")
    if labels.shape != (batch,):
        raise ValueError(
            f"labels have shape {tuple(labels.shape)}; expected ({batch},) class indices, "
            "or class probabilities of a floating-point type"
        )
    if values_are_readable(labels) and batch:
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= num_classes:
            wrong = low if low < 0 else high
            raise ValueError(f"label {wrong} is out of range; expected 0 to {num_classes - 1}")


def check_target(target: Tensor, batch: int, num_classes: int) -> None:
    """Labels, or class probabilities."""
    if not target.is_floating_point():
        check_labels(target, batch, num_classes)
    elif target.shape != (batch, num_classes):
        raise ValueError(
            f"targets are {target.dtype} of shape {tuple(target.shape)}; expected integer labels "
            f"({batch},) or class probabilities ({batch}, {num_classes})"
        )


def check_shares(lam: float | Tensor, batch: int) -> None:
    """The λ of mixed labels: one number, or one for each sample."""
    if isinstance(lam, Tensor):
        if lam.shape not in ((), (batch,)):
            raise ValueError(f"lam has shape {tuple(lam.shape)}; expected () or ({batch},)")
        wrong = values_are_readable(lam) and not ((lam >= 0) & (lam <= 1)).all()
    else:
        wrong = not 0 <= lam <= 1
    if wrong:
        raise ValueError(f"lam is {lam}; expected 0 to 1")


def check_positive(name: str, value: float, at_most: float = float("inf")) -> None:
    if not isinstance(value, int | float) or not 0 < value <= at_most:
        limit = "" if at_most == float("inf") else f" and at most {at_most:g}"
        raise InputError(f"{name} is {value}; expected a number above 0{limit}")


def check_whole(name: str, value: object, at_least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise InputError(f"{name} is {value!r}; expected a whole number of at least {at_least}")


def check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise unknown("reduction", reduction, ("mean", "sum", "none"))


def check_from_zero(name: str, value: float, below: float = float("inf")) -> None:
    if not 0 <= value < below:
        limit = "" if below == float("inf") else f" and below {below:g}"
        raise InputError(f"{name} is {value}; expected a number of at least 0{limit}")


def check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} is {value}; expected a number from 0 to 1")


def as_class_counts(class_counts: Sequence[int] | Tensor | None, needed_by: str) -> Tensor:
    """The training images of every class as float64, refused where one is missing or zero."""
    if class_counts is None:
        raise InputError(f"{needed_by} needs class_counts: the number of training images per class")
    counts = torch.as_tensor(class_counts, dtype=torch.float64).detach()
    if counts.dim() != 1 or len(counts) == 0:
        raise InputError(f"class_counts have shape {tuple(counts.shape)}; expected (num_classes,)")
    if not counts.isfinite().all() or (counts < 0).any():
        raise InputError(f"class_counts are {counts.tolist()}; expected numbers of at least 0")
    if (counts == 0).any():
        empty = (counts == 0).nonzero().flatten().tolist()
        named = ", ".join(map(str, empty[:5])) + (", …" if len(empty) > 5 else "")
        raise InputError(
            f"{needed_by} needs an image of every class, but class {named} has none; "
            "remove the class or add an image"
        )
    return counts


def create(
    kind: str,
    classes: Mapping[str, Callable[..., T]],
    name: str,
    options: dict[str, Any],
    **context: Any,
) -> T:
    """Build `classes[name]` from the user's options and whatever of the context it takes."""
    if name not in classes:
        raise unknown(kind, name, classes)
    accepted = inspect.signature(classes[name]).parameters
    for option in options:
        if option not in accepted:
            raise unknown(f"option of {kind} {name!r}", option, set(accepted) - set(context))
    given = {key: value for key, value in context.items() if key in accepted} | options
    missing = [key for key, p in accepted.items() if p.default is p.empty and key not in given]
    if missing:
        raise InputError(f"{kind} {name!r} needs {' and '.join(missing)}; give {missing[0]}=…")
    return classes[name](**given)

"""Methods: what `--method` names."""

from wcdas.errors import unknown
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StageStart, StepBatch, StepState
from wcdas.methods.table import METHODS

_SHIPPED = dict(METHODS)


def is_shipped(name: str) -> bool:
    """Tell whether a name is the same in every process: no script registered another method."""
    return METHODS[name] is _SHIPPED.get(name)


def find_method(name: str) -> Method:
    """The method of a name; one of your own has to be in METHODS."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def list_methods() -> list[str]:
    """The names `--method` knows."""
    return list(METHODS)


__all__ = [
    "METHODS",
    "Classifier",
    "Method",
    "Parts",
    "StageStart",
    "StepBatch",
    "StepState",
    "find_method",
    "is_shipped",
    "list_methods",
]

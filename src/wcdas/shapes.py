"""What a file must hold: values that were read are compared with types, as annotations say them."""

import dataclasses
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from wcdas.errors import InputError

PLAIN = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
LONGEST = 60  # characters of a value that are shown


def check_shape(value: object, hint: Any, where: str) -> None:
    """Refuse a value of JSON or TOML that is not of a type.

    A `TypedDict` or a dataclass is a table with these keys, and others are let pass. Numbers are
    finite. `where` is what an error calls the value.

    >>> check_shape({"losses": [0.5, "x"]}, dict[str, list[float]], "the log")
    Traceback (most recent call last):
    wcdas.errors.InputError: the log.losses[1] is 'x'; expected a number
    """
    origin, of = get_origin(hint), get_args(hint)
    if hint is Any:
        return
    if origin in (Union, types.UnionType):
        _check_either(value, of, where)
    elif origin is Literal:
        if value not in of:
            raise _other(value, " or ".join(map(repr, of)), where)
    elif is_typeddict(hint) or dataclasses.is_dataclass(hint):
        _check_table(value, hint, where)
    elif origin in (list, tuple):
        if not isinstance(value, list):
            raise _other(value, "a list", where)
        for i, item in enumerate(value):
            check_shape(item, of[0], f"{where}[{i}]")
    elif origin in (dict, Mapping):
        for key, item in _items(value, where):
            check_shape(item, of[1], f"{where}.{key}")
    elif not _is_plain(value, hint):
        raise _other(value, PLAIN.get(hint, "nothing"), where)


def _check_either(value: object, hints: tuple[Any, ...], where: str) -> None:
    """A value that is there is what the first of the types says."""
    if value is None and type(None) in hints:
        return
    check_shape(value, hints[0], where)


def _check_table(value: object, hint: Any, where: str) -> None:
    table = dict(_items(value, where))
    if is_typeddict(hint):
        required = hint.__required_keys__
    else:
        fields = dataclasses.fields(hint)
        nothing = dataclasses.MISSING
        required = {f.name for f in fields if f.default is f.default_factory is nothing}
    for key, inner in _hints(hint).items():
        if key in table:
            check_shape(table[key], inner, f"{where}.{key}")
        elif key in required:
            raise InputError(f"{where} has no {key!r}")


@cache
def _hints(hint: Any) -> dict[str, Any]:
    return get_type_hints(hint)


def _items(value: object, where: str) -> Any:
    if not isinstance(value, dict):
        raise _other(value, "a table", where)
    return value.items()


def _is_plain(value: object, hint: Any) -> bool:
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    return type(value) is hint or (hint is types.NoneType and value is None)


def _other(value: object, expected: str, where: str) -> InputError:
    shown = repr(value)
    shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
    return InputError(f"{where} is {shown}; expected {expected}")

"""A dataset from the options a user wrote as `data.…`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wcdas.data import OPTIONS, HuggingFace, open_dataset
from wcdas.data.dataset import Dataset
from wcdas.errors import InputError, unknown


def open_data(
    source: str | Path | HuggingFace,
    options: Mapping[str, Any] | None = None,
    skip_bad: bool = False,
) -> Dataset:
    """`open_dataset` with every option checked by name and type; `source` among them is ignored."""
    options = {} if options is None else options
    if not isinstance(options, Mapping):
        raise InputError(f"data is {options!r}; expected data.KEY=VALUE, such as data.root=DIR")
    given = {key: value for key, value in options.items() if key != "source"}
    for key in given:
        if key not in OPTIONS:
            raise unknown("key", f"data.{key}", [f"data.{k}" for k in OPTIONS])
    checked = {key: _checked(key, value) for key, value in given.items()}
    if skip_bad:
        checked["skip_bad"] = True
    return open_dataset(source, **checked)


def _checked(key: str, value: Any) -> Any:
    if key == "imbalance":
        return value  # open_dataset knows its bounds
    if key == "seed":
        if type(value) is not int:
            raise InputError(f"data.seed is {value!r}; expected a whole number")
        return value
    if key == "skip_bad":
        if type(value) is not bool:
            raise InputError(f"data.skip_bad is {value!r}; expected true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, (str, Path, int, float)):
        raise InputError(f"data.{key} is {value!r}; expected a text")
    return value if isinstance(value, Path) else str(value)  # a folder may be called 2024

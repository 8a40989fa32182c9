"""The options of a dataset, which a user writes as `data.…`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wcdas.data.classes import read_class_names
from wcdas.errors import InputError, unknown


@dataclass(frozen=True)
class Options:
    """What every source is opened with; `open_dataset` says what each means."""

    imbalance: float | None = None
    profile: str = "exp"
    root: Path | None = None
    classes: Path | None = None
    labels: Path | None = None
    skip_bad: bool = False
    seed: int = 0

    @property
    def data_root(self) -> Path:
        """Where named datasets lie."""
        return self.root or Path(os.environ.get("WCDAS_DATA") or "data").expanduser()

    @property
    def class_names(self) -> list[str] | None:
        """The names in the file `classes`, where one is given."""
        return None if self.classes is None else read_class_names(self.classes)


OPTIONS = sorted(field.name for field in fields(Options))


def checked(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check the options that a user wrote by name and type; `source` among them is left out."""
    options = {} if options is None else options
    if not isinstance(options, Mapping):
        raise InputError(f"data is {options!r}; expected data.KEY=VALUE, such as data.root=DIR")
    given = {key: value for key, value in options.items() if key != "source"}
    for key, value in given.items():
        if key not in OPTIONS:
            raise unknown("key", f"data.{key}", [f"data.{known}" for known in OPTIONS])
        if key == "seed" and type(value) is not int:
            raise InputError(f"data.seed is {value!r}; expected a whole number")
        if key == "skip_bad" and type(value) is not bool:
            raise InputError(f"data.skip_bad is {value!r}; expected true or false")
        if key in ("profile", "root", "classes", "labels"):
            if isinstance(value, bool) or not isinstance(value, str | Path | int | float):
                raise InputError(f"data.{key} is {value!r}; expected a text")
            given[key] = value if isinstance(value, Path) else str(value)  # a folder named 2024
    return given

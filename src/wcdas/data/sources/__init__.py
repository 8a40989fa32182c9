"""Where datasets come from: a file for each source, each with an opener of the same shape."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from wcdas.data.dataset import Dataset
from wcdas.data.sources.assembly import Options
from wcdas.data.sources.cifar import open_cifar
from wcdas.data.sources.digits import open_digits
from wcdas.data.sources.features import holds_features, open_numpy_features, open_parquet_features
from wcdas.data.sources.folder import open_folder
from wcdas.data.sources.hugging_face import (
    IN_MEMORY,
    HuggingFace,
    in_memory,
    is_saved,
    open_in_memory,
    open_saved,
)
from wcdas.data.sources.lists import open_list, open_published
from wcdas.data.sources.tables import is_parquet, open_parquet
from wcdas.errors import InputError, unknown


class Named(NamedTuple):
    """A dataset known by its name."""

    summary: str
    open: Callable[[str, Options], Dataset]


NAMED = {
    "digits-lt": Named(
        "handwritten digits, 10 classes of 120 to 2 images; comes with the package", open_digits
    ),
    "cifar10-lt": Named(
        "10 classes; the official archive or Parquet; data.imbalance, data.profile", open_cifar
    ),
    "cifar100-lt": Named(
        "100 classes; the official archive or Parquet; data.imbalance, data.profile", open_cifar
    ),
    "imagenet-lt": Named(
        "1,000 classes; the public list files over an image root, data.root", open_published
    ),
    "inat2018": Named(
        "8,142 classes; the public list files or JSON over an image root, data.root", open_published
    ),
}
TAILED = ("digits-lt", "cifar10-lt", "cifar100-lt")  # shaped by data.imbalance and data.profile
OPTIONS = sorted(field.name for field in fields(Options))

# What a file or folder may be: the first that it is opens it.
PATHS: list[tuple[Callable[[Path], bool], Callable[[Path, Options], Dataset]]] = [
    (lambda path: path.suffix == ".npy", open_numpy_features),
    (is_saved, open_saved),
    (holds_features, open_parquet_features),
    (is_parquet, open_parquet),
    (Path.is_dir, open_folder),
    (Path.exists, open_list),
]


def list_datasets() -> list[str]:
    """The names that `open_dataset` knows."""
    return sorted(NAMED)


def open_dataset(
    data: str | Path | HuggingFace = "digits-lt",
    *,
    imbalance: float | None = None,
    profile: str = "exp",
    root: str | Path | None = None,
    classes: str | Path | None = None,
    labels: str | Path | None = None,
    skip_bad: bool = False,
    seed: int = 0,
) -> Dataset:
    """Open a dataset by its name or path, checked before any training.

    Args:
        data: a name (`list_datasets()`), a folder of class folders, a list file, a Parquet file or
            folder in the Hugging Face image layout, a folder that `save_to_disk` of `datasets`
            wrote, a `Dataset` or `DatasetDict` itself, or features (Parquet with vectors, `.npy`).
        imbalance: largest over smallest class; for the sets that are made long-tailed.
        profile: "exp" or "step".
        root: where named datasets and the images of a list file lie; else `$WCDAS_DATA` or
            `./data` for named ones, and the folder of the list file.
        classes: a text file with the class names in the order of their labels.
        labels: the labels of an `.npy` file of features.
        skip_bad: leave unreadable images out, instead of refusing them.
        seed: of the stratified split, where a dataset has no test set of its own.

    >>> open_dataset("digits-lt").class_counts.tolist()
    [120, 77, 50, 32, 21, 13, 8, 5, 3, 2]
    """
    options = Options(
        imbalance=None if imbalance is None else _number("data.imbalance", imbalance),
        profile=profile,
        root=Path(root).expanduser() if root else None,
        classes=Path(classes).expanduser() if classes is not None else None,
        labels=Path(labels).expanduser() if labels is not None else None,
        skip_bad=skip_bad,
        seed=seed,
    )
    name = in_memory(data) or str(data)
    if name not in TAILED and (imbalance is not None or profile != "exp"):
        raise InputError(
            f"data.imbalance and data.profile shape {', '.join(TAILED)}; {name} is taken as it is"
        )
    if labels is not None and not name.endswith(".npy"):
        raise InputError(f"data.labels belongs to features in an .npy file; {name} is none")
    if classes is not None and name in TAILED:
        raise InputError(f"data.classes is for your own data; {name} has its own class names")
    if name in NAMED:
        return NAMED[name].open(name, options)
    if not isinstance(data, str | Path):
        return open_in_memory(data, options)
    if name.startswith(IN_MEMORY):
        raise InputError(
            f"{name} was a `datasets` object in memory; hand it in again, or save it with "
            "save_to_disk and name the folder"
        )
    path = Path(data).expanduser()
    for is_one, open_path in PATHS:
        if path.exists() and is_one(path):
            return open_path(path, options)
    if any(separator in name for separator in ("/", "\\", ".")):
        raise InputError(f"{name} does not exist; expected a folder, a file or a known dataset")
    raise InputError(f"{unknown('dataset', name, NAMED)} (nor is it a file or folder)")


def open_data(
    data: str | Path | HuggingFace, options: Mapping[str, Any] | None, skip_bad: bool = False
) -> Dataset:
    """Open a dataset with the options as a user wrote them, checked by name and type."""
    return open_dataset(data, **_checked(options) | ({"skip_bad": True} if skip_bad else {}))


def _checked(options: Mapping[str, Any] | None) -> dict[str, Any]:
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


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; expected a number") from None

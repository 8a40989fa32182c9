"""Datasets: a name, a folder, a list file, Parquet or features in; two checked splits out."""

import inspect
import os
from pathlib import Path
from typing import Any

from wcdas.data.cifar import open_cifar
from wcdas.data.dataset import (
    ArrayImages,
    BytesImages,
    Dataset,
    FeatureVectors,
    FileImages,
    Split,
    StoredImages,
)
from wcdas.data.digits import open_digits
from wcdas.data.features import open_numpy_features, open_parquet_features, vector_column
from wcdas.data.folder import open_folder
from wcdas.data.hugging_face import (
    IN_MEMORY,
    HuggingFace,
    in_memory,
    is_saved,
    open_in_memory,
    open_saved,
)
from wcdas.data.lists import open_list
from wcdas.data.parquet import image_column, read_schema
from wcdas.data.parquet_images import open_parquet
from wcdas.data.profile import LongTailSummary, long_tail_counts, summary
from wcdas.data.published import PUBLISHED, open_published
from wcdas.errors import InputError, unknown
from wcdas.groups import groups

__all__ = [
    "OPTIONS",
    "ArrayImages",
    "BytesImages",
    "Dataset",
    "FeatureVectors",
    "FileImages",
    "HuggingFace",
    "LongTailSummary",
    "Split",
    "StoredImages",
    "groups",
    "in_memory",
    "list_datasets",
    "long_tail_counts",
    "open_dataset",
    "summary",
]

CIFAR = {"cifar10-lt": "cifar10", "cifar100-lt": "cifar100"}
TAILED = ("digits-lt", *CIFAR)


def list_datasets() -> list[str]:
    """The names that `open_dataset` knows."""
    return sorted([*TAILED, *PUBLISHED])


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
    if imbalance is not None:
        imbalance = _number("data.imbalance", imbalance)
    tail: dict[str, Any] = {"profile": profile} | (
        {} if imbalance is None else {"imbalance": imbalance}
    )
    class_file = Path(classes).expanduser() if classes is not None else None
    name = in_memory(data) or str(data)
    if name not in TAILED and (imbalance is not None or profile != "exp"):
        raise InputError(
            f"data.imbalance and data.profile shape {', '.join(TAILED)}; {name} is taken as it is"
        )
    if labels is not None and not name.endswith(".npy"):
        raise InputError(f"data.labels belongs to features in an .npy file; {name} is none")
    if class_file is not None and name in TAILED:
        raise InputError(f"data.classes is for your own data; {name} has its own class names")

    place = Path(root or os.environ.get("WCDAS_DATA") or "data").expanduser()
    if name == "digits-lt":
        return open_digits(**tail)
    if name in CIFAR:
        return open_cifar(CIFAR[name], place, **tail)
    if name in PUBLISHED:
        return open_published(name, place, class_file)

    if not isinstance(data, str | Path):
        return open_in_memory(data, name, classes=class_file, skip_bad=skip_bad, seed=seed)
    if name.startswith(IN_MEMORY):
        raise InputError(
            f"{name} was a `datasets` object in memory; hand it in again, or save it with "
            "save_to_disk and name the folder"
        )
    path = Path(data).expanduser()
    if not path.exists():
        looks_like_a_path = any(separator in name for separator in ("/", "\\", "."))
        if looks_like_a_path:
            raise InputError(f"{name} does not exist; expected a folder, a file or a known dataset")
        raise InputError(
            f"{unknown('dataset', name, list_datasets())} (nor is it a file or folder)"
        )
    if path.suffix == ".npy":
        label_file = Path(labels).expanduser() if labels is not None else None
        return open_numpy_features(path, labels=label_file, classes=class_file, seed=seed)
    if is_saved(path):
        return open_saved(path, classes=class_file, skip_bad=skip_bad, seed=seed)
    if path.is_dir() and not _has_parquet(path):
        return open_folder(path, classes=class_file, skip_bad=skip_bad, seed=seed)
    if path.is_dir() or path.suffix == ".parquet":
        if path.is_file() and _holds_features(path):
            return open_parquet_features(path, classes=class_file, seed=seed)
        return open_parquet(path, classes=class_file, skip_bad=skip_bad, seed=seed)
    image_root = Path(root).expanduser() if root is not None else None
    return open_list(path, root=image_root, classes=class_file, skip_bad=skip_bad, seed=seed)


# What a user writes as `data.…`.
OPTIONS = sorted(set(inspect.signature(open_dataset).parameters) - {"data"})


def _has_parquet(folder: Path) -> bool:
    return any(folder.glob("*.parquet")) or any((folder / "data").glob("*.parquet"))


def _holds_features(file: Path) -> bool:
    schema = read_schema(file)
    return image_column(schema) is None and vector_column(schema) is not None


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; expected a number") from None

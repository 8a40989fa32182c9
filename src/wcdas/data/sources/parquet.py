"""Parquet files of images in the layout of Hugging Face `datasets`.

In a folder, files whose names contain "train" and "test" (or "validation") are the two sets.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from wcdas.data.classes import read_class_names
from wcdas.data.dataset import Dataset
from wcdas.data.sources.assembly import Images, dataset_of_images
from wcdas.data.sources.options import Options
from wcdas.data.sources.tables import (
    columns_of,
    images_of,
    split_names,
    stored_class_names,
)
from wcdas.errors import InputError, explained


def is_parquet(path: Path) -> bool:
    """Return whether a path is a Parquet file, or a folder of them."""
    return bool(_files(path)) if path.is_dir() else path.suffix == ".parquet"


def open_parquet(path: Path, options: Options) -> Dataset:
    """Open a Parquet file of images, or a folder of them."""
    train_files, test_files = split_files(path)
    class_names = options.class_names or parquet_class_names(train_files[0])
    train, class_names = read_images(train_files, class_names, "train")
    test = read_images(test_files, class_names, "test")[0] if test_files else None
    description = {
        "source": "parquet",
        "train_files": [file.name for file in train_files],
        "test_files": [file.name for file in test_files],
    }
    return dataset_of_images(str(path), class_names, train, test, options, description)


def split_files(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the files for training and for the test; all are for training if no name tells."""
    if path.is_file():
        return [path], []
    files = _files(path)
    if not files:
        raise InputError(f"{path} holds no .parquet files; expected train.parquet, test.parquet")
    train, test = split_names([file.name for file in files], str(path))
    return [f for f in files if f.name in train], [f for f in files if f.name in test]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet")) or sorted((folder / "data").glob("*.parquet"))


def parquet_class_names(file: Path) -> list[str] | None:
    """Return names from the schema as `datasets` writes it, or from classes.txt."""
    names = stored_class_names(read_schema(file), str(file))
    beside = file.parent / "classes.txt"
    return names or (read_class_names(beside) if beside.is_file() else None)


def read_images(
    files: Sequence[Path], class_names: list[str] | None, prefix: str
) -> tuple[Images, list[str]]:
    """Return the encoded images and labels of one set, in file order."""
    tables = {str(file): read_columns(file, columns_of(read_schema(file), file)) for file in files}
    where = str(files[0] if len(files) == 1 else files[0].parent)
    return images_of(tables, class_names, where, prefix)


def read_schema(file: Path) -> pa.Schema:
    with explained(f"{file} cannot be read as Parquet: ", OSError, pa.ArrowException):
        return pq.read_schema(file)


def read_columns(file: Path, columns: list[str]) -> pa.Table:
    with explained(f"{file} cannot be read as Parquet: ", OSError, pa.ArrowException):
        return pq.read_table(file, columns=columns, partitioning=None)

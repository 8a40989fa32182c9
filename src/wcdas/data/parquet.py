"""Parquet files in the layout of Hugging Face `datasets`: `image: struct<bytes, path>`, `label`.

In a folder, files whose names contain "train" and "test" (or "validation") are the two sets.
Paths stored beside the bytes are never opened.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from wcdas.data.classes import encode_labels, read_class_names
from wcdas.errors import InputError

LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target")
TEST_WORDS = ("test", "validation", "valid", "val")


class EncodedImages(NamedTuple):
    """Encoded images and their labels, as a Parquet file stores them."""

    encoded: list[bytes]
    labels: Tensor


def split_files(path: Path) -> tuple[list[Path], list[Path]]:
    """The files of the training and of the test set; all are for training if no name tells."""
    if path.is_file():
        return [path], []
    files = sorted(path.glob("*.parquet")) or sorted((path / "data").glob("*.parquet"))
    if not files:
        raise InputError(f"{path} holds no .parquet files; expected train.parquet, test.parquet")
    train = [file for file in files if "train" in file.name.lower()]
    for word in TEST_WORDS:
        test = [f for f in files if word in f.name.lower() and f not in train]
        if test:
            break
    if test and not train:
        raise InputError(f"{path} has {test[0].name} but no file with “train” in its name")
    return train or files, test


def parquet_class_names(file: Path, classes: Path | None) -> list[str] | None:
    """Names from a given file, from the schema as `datasets` writes it, or from classes.txt."""
    if classes is not None:
        return read_class_names(classes)
    schema = read_schema(file)
    stored = (schema.metadata or {}).get(b"huggingface")
    if stored is not None:
        feature = _features_of(stored).get(label_column(schema, file), {})
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, dict):
            names = [names[key] for key in sorted(names, key=int)]
        if names:
            return [str(name) for name in names]
    beside = file.parent / "classes.txt"
    return read_class_names(beside) if beside.is_file() else None


def _features_of(metadata: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(metadata)["info"]["features"])
    except (ValueError, KeyError, TypeError):
        return {}


def read_schema(file: Path) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file} cannot be read as Parquet: {_one_line(error)}") from error


def read_columns(file: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.read_table(file, columns=columns, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file} cannot be read as Parquet: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def image_column(schema: pa.Schema) -> str | None:
    """The first column of type struct<bytes, …>."""
    for column in schema:
        if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
            return str(column.name)
    return None


def label_column(schema: pa.Schema, file: Path) -> str:
    for name in LABEL_COLUMNS:
        if name in schema.names:
            return name
    raise InputError(f"{file} has the columns {', '.join(schema.names)}; expected a column “label”")


def read_labels(column: pa.ChunkedArray, file: Path) -> list[int] | list[str]:
    """The labels of a file as Python numbers or names."""
    if column.null_count:
        row = column.to_pylist().index(None)
        raise InputError(f"{file}: row {row} has no label; remove the row or label it")
    types = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    if any(is_type(column.type) for is_type in types):
        return column.to_pylist()
    raise InputError(f"{file}: labels are {column.type}; expected integers or strings")


def read_images(
    files: Sequence[Path], class_names: list[str] | None
) -> tuple[EncodedImages, list[str]]:
    """The encoded images and labels of one set, in file order."""
    encoded: list[Any] = []
    values: list[Any] = []
    for file in files:
        schema = read_schema(file)
        column = image_column(schema)
        if column is None:
            raise InputError(
                f"{file} has the columns {', '.join(schema.names)}; expected an image column "
                "struct<bytes, path>, or a vector column list<float> for features"
            )
        label = label_column(schema, file)
        table = read_columns(file, [column, label])
        values += read_labels(table[label], file)
        for chunk in table[column].chunks:
            encoded += chunk.field("bytes").to_pylist()
    where = str(files[0] if len(files) == 1 else files[0].parent)
    if None in encoded:
        raise InputError(
            f"{where}: row {encoded.index(None)} has no image bytes; expected images embedded in "
            "the file, not paths"
        )
    labels, class_names = encode_labels(values, class_names, where)
    return EncodedImages(encoded, labels), class_names

"""Parquet files in the layout of Hugging Face `datasets`: `image: struct<bytes, path>`, `label`.

In a folder, files whose names contain "train" and "test" (or "validation") are the two sets.
Paths stored beside the bytes are never opened.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from wcdas.data.classes import encode_labels, read_class_names
from wcdas.data.decode import Encoded
from wcdas.errors import InputError

LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target")
TEST_WORDS = ("test", "validation", "valid", "val")


class EncodedImages(NamedTuple):
    """Encoded images and their labels; the bytes are views of the table they lie in."""

    encoded: list[Encoded]
    labels: Tensor


def split_files(path: Path) -> tuple[list[Path], list[Path]]:
    """The files of the training and of the test set; all are for training if no name tells."""
    if path.is_file():
        return [path], []
    files = sorted(path.glob("*.parquet")) or sorted((path / "data").glob("*.parquet"))
    if not files:
        raise InputError(f"{path} holds no .parquet files; expected train.parquet, test.parquet")
    train, test = split_names([file.name for file in files], str(path))
    return [f for f in files if f.name in train], [f for f in files if f.name in test]


def split_names(names: Sequence[str], where: str) -> tuple[list[str], list[str]]:
    """The names of the training and of the test parts; all are for training if none tells."""
    train = [name for name in names if "train" in name.lower()]
    for word in TEST_WORDS:
        test = [name for name in names if word in name.lower() and name not in train]
        if test:
            break
    if test and not train:
        raise InputError(f"{where} has {test[0]} but nothing with “train” in its name")
    return train or list(names), test


def parquet_class_names(file: Path, classes: Path | None) -> list[str] | None:
    """Names from a given file, from the schema as `datasets` writes it, or from classes.txt."""
    if classes is not None:
        return read_class_names(classes)
    names = stored_class_names(read_schema(file), str(file))
    beside = file.parent / "classes.txt"
    return names or (read_class_names(beside) if beside.is_file() else None)


def stored_class_names(schema: pa.Schema, where: str) -> list[str] | None:
    """The names that `datasets` writes beside a column of class labels."""
    names = _features(schema).get(label_column(schema, where), {}).get("names")
    if isinstance(names, dict):
        names = [names[key] for key in sorted(names, key=int)]
    return [str(name) for name in names] if names else None


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    try:
        stored = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature for name, feature in stored.items() if isinstance(feature, dict)}
    except (ValueError, KeyError, TypeError, AttributeError):
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


def label_column(schema: pa.Schema, where: str | Path) -> str:
    """A column of a known name, or the only one that `datasets` marks as class labels."""
    for name in LABEL_COLUMNS:
        if name in schema.names:
            return name
    marked = [k for k, feature in _features(schema).items() if feature.get("_type") == "ClassLabel"]
    if len(marked) == 1 and marked[0] in schema.names:
        return marked[0]
    raise InputError(
        f"{where} has the columns {', '.join(schema.names)}; expected a column “label”"
    )


def read_labels(column: pa.ChunkedArray, file: str | Path) -> list[int] | list[str]:
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
    tables = {str(file): read_columns(file, columns_of(read_schema(file), file)) for file in files}
    where = str(files[0] if len(files) == 1 else files[0].parent)
    return images_of(tables, class_names, where)


def columns_of(schema: pa.Schema, where: str | Path) -> list[str]:
    """The columns of images and of labels."""
    column = image_column(schema)
    if column is None:
        raise InputError(
            f"{where} has the columns {', '.join(schema.names)}; expected an image column "
            "struct<bytes, path>, or a vector column list<float> for features"
        )
    return [column, label_column(schema, where)]


def images_of(
    tables: Mapping[str, pa.Table], class_names: list[str] | None, where: str
) -> tuple[EncodedImages, list[str]]:
    """The encoded images and labels of tables, one after the other."""
    encoded: list[Any] = []
    values: list[Any] = []
    for name, table in tables.items():
        column, label = columns_of(table.schema, name)
        values += read_labels(table[label], name)
        for chunk in table[column].chunks:
            encoded += [image.as_buffer() for image in chunk.field("bytes")]
    missing = [row for row, image in enumerate(encoded) if image is None]
    if missing:
        raise InputError(
            f"{where}: row {missing[0]} has no image bytes; expected images embedded in "
            "the file, not paths"
        )
    labels, class_names = encode_labels(values, class_names, where)
    return EncodedImages(encoded, labels), class_names

"""Tables of images and labels in the layout of Hugging Face `datasets`, in Parquet or in Arrow.

A column of images is of type `struct<bytes, path>`; paths stored beside the bytes are not opened.
In a folder, Parquet files whose names contain "train" and "test" (or "validation") are the two
sets.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wcdas.data.classes import encode_labels, read_class_names
from wcdas.data.dataset import BytesImages, Dataset, FileImages
from wcdas.data.sources.assembly import Images, Options, dataset_of_images
from wcdas.errors import InputError, explained
from wcdas.files import check_regular

LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target")
TEST_WORDS = ("test", "validation", "valid", "val")


def is_parquet(path: Path) -> bool:
    """Return whether a path is a Parquet file, or a folder of them."""
    return bool(_files(path)) if path.is_dir() else path.suffix == ".parquet"


def open_parquet(path: Path, options: Options) -> Dataset:
    """Open a Parquet file of images, or a folder of them."""
    train_files, test_files = split_files(path)
    train, class_names = read_images(train_files, options.class_names, "train")
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
    """Return the encoded images and labels of one set, in file order, and the class names."""
    class_names = class_names or parquet_class_names(files[0])
    tables = {str(file): read_columns(file, columns_of(read_schema(file), file)) for file in files}
    where = str(files[0] if len(files) == 1 else files[0].parent)
    return images_of(tables, class_names, where, prefix)


def read_schema(file: Path) -> pa.Schema:
    check_regular(file)
    with explained(f"{file} cannot be read as Parquet: ", OSError, pa.ArrowException):
        stored = pq.read_metadata(file)
        schema = stored.schema.to_arrow_schema()
    if stored.num_rows == 0 and image_column(schema) is None:  # columns that nothing is in
        raise InputError(f"{file} has no rows; expected one with a label for each image")
    return schema


def read_columns(file: Path, columns: list[str]) -> pa.Table:
    check_regular(file)
    with explained(f"{file} cannot be read as Parquet: ", OSError, pa.ArrowException):
        return pq.read_table(file, columns=columns, partitioning=None)


def images_of(
    tables: Mapping[str, pa.Table],
    class_names: list[str] | None,
    where: str,
    prefix: str,
    by_path: bool = False,
) -> tuple[Images, list[str]]:
    """Return the images and labels of tables, one after the other, and the names of the classes.

    Encoded images are views of the tables they lie in.
    """
    images: list[Any] = []
    values: list[Any] = []
    for name, table in tables.items():
        column, label = columns_of(table.schema, name)
        values += read_labels(table[label], name)
        for chunk in table[column].chunks:
            if by_path:
                images += map(str, chunk.field("path"))
            else:
                images += [image.as_buffer() for image in chunk.field("bytes")]
    missing = [row for row, image in enumerate(images) if image is None]
    if missing:
        raise InputError(
            f"{where}: row {missing[0]} has no image bytes; expected images embedded in "
            "the file, not paths"
        )
    labels, class_names = encode_labels(values, class_names, where)
    if by_path:
        return FileImages(Path("/"), images, labels, 3), class_names
    return BytesImages(images, labels, 3, prefix), class_names


def split_names(names: Sequence[str], where: str) -> tuple[list[str], list[str]]:
    """Return the parts for training and for the test; all are for training if no name tells."""
    train = [name for name in names if "train" in name.lower()]
    for word in TEST_WORDS:
        test = [name for name in names if word in name.lower() and name not in train]
        if test:
            break
    if test and not train:
        raise InputError(f"{where} has {test[0]} but nothing with “train” in its name")
    return train or list(names), test


def columns_of(schema: pa.Schema, where: str | Path) -> list[str]:
    """Return the columns of images and of labels."""
    column = image_column(schema)
    if column is None:
        raise InputError(
            f"{where} has the columns {', '.join(schema.names)}; expected an image column "
            "struct<bytes, path>, or a vector column list<float> for features"
        )
    return [column, label_column(schema, where)]


def image_column(schema: pa.Schema) -> str | None:
    """Return the first column of type struct<bytes, …>."""
    for column in schema:
        if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
            return str(column.name)
    return None


def label_column(schema: pa.Schema, where: str | Path) -> str:
    """Return a column of a known name, or the only one that `datasets` marks as class labels."""
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
    """Return the labels of a file as Python numbers or names."""
    if column.null_count:
        row = column.to_pylist().index(None)
        raise InputError(f"{file}: row {row} has no label; remove the row or label it")
    types = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    if any(is_type(column.type) for is_type in types):
        return column.to_pylist()
    raise InputError(f"{file}: labels are {column.type}; expected integers or strings")


def stored_class_names(schema: pa.Schema, where: str) -> list[str] | None:
    """Return the names that `datasets` writes beside a column of class labels."""
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

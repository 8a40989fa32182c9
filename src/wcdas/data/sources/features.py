"""Precomputed features: a Parquet file with a vector and a label column, or `.npy` with labels.

Parquet: a column of type list<float> (`features` where there are several), a column `label`
(numbers or names) and, if it has one, a column `split` with `train` and `test`. NumPy: (N, d)
numbers in X.npy and N labels in X_labels.npy, X.labels.npy or the file given as `data.labels`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from wcdas.data.classes import encode_labels
from wcdas.data.dataset import Dataset, FeatureVectors
from wcdas.data.sources.assembly import TEST_WORDS, Options, assemble
from wcdas.data.sources.tables import (
    image_column,
    label_column,
    parquet_class_names,
    read_columns,
    read_labels,
    read_schema,
)
from wcdas.data.split import stratified_split
from wcdas.errors import InputError, explained
from wcdas.files import check_regular

VECTOR_COLUMNS = ("features", "feature", "vector", "embedding", "embeddings")


def vector_column(schema: pa.Schema) -> str | None:
    """Return the column of type list<float>; by its usual names where there are several."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    vectors = [
        str(column.name)
        for column in schema
        if any(is_kind(column.type) for is_kind in kinds)
        and pa.types.is_floating(column.type.value_type)
    ]
    return next((name for name in VECTOR_COLUMNS if name in vectors), next(iter(vectors), None))


def holds_features(path: Path) -> bool:
    """Return whether a path is a Parquet file with vectors and without images."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    schema = read_schema(path)
    return image_column(schema) is None and vector_column(schema) is not None


def open_parquet_features(file: Path, options: Options) -> Dataset:
    schema = read_schema(file)
    label, vector = label_column(schema, file), vector_column(schema)
    assert vector is not None, "the file was chosen by `holds_features`"
    columns = [vector, label] + (["split"] if "split" in schema.names else [])
    table = read_columns(file, columns)
    values = read_labels(table[label], file)
    names = options.class_names or parquet_class_names(file)
    labels, class_names = encode_labels(values, names, str(file))
    in_test = _in_test(table["split"].to_pylist(), file) if "split" in columns else None
    return _dataset(file, _stacked(table[vector], file), labels, class_names, in_test, options)


def open_numpy_features(file: Path, options: Options) -> Dataset:
    beside = [file.with_name(f"{file.stem}{end}") for end in ("_labels.npy", ".labels.npy")]
    label_file = options.labels or next((path for path in beside if path.is_file()), None)
    if label_file is None:
        raise InputError(
            f"{file} has no labels; expected them in {beside[0].name} beside it, or in the file "
            "given as data.labels"
        )
    vectors, values = _load(file), _load(label_file)
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or 0 in vectors.shape:
        raise InputError(f"{file} is {vectors.dtype} {vectors.shape}; expected numbers (N, d)")
    if values.shape != (len(vectors),) or values.dtype.kind not in "iuU":
        raise InputError(
            f"{label_file} is {values.dtype} {values.shape}; expected ({len(vectors)},) integers "
            "or names"
        )
    encoded, class_names = encode_labels(values.tolist(), options.class_names, str(label_file))
    stacked = torch.from_numpy(vectors.astype(np.float32))
    return _dataset(file, stacked, encoded, class_names, None, options)


def _dataset(
    file: Path,
    vectors: Tensor,
    labels: Tensor,
    class_names: list[str],
    in_test: Tensor | None,
    options: Options,
) -> Dataset:
    wrong = (~vectors.isfinite()).any(dim=1).nonzero().flatten().tolist()
    if wrong:
        raise InputError(
            f"{file} contains NaN or infinity in {len(wrong)} rows, first in row {wrong[0]}; "
            "expected finite numbers"
        )
    description: dict[str, Any] = {"source": "features"}
    if in_test is None:
        train, test = stratified_split(labels, options.seed)
        description["split_seed"] = options.seed
    else:
        train, test = (~in_test).nonzero().flatten(), in_test.nonzero().flatten()
    return assemble(
        str(file),
        class_names,
        FeatureVectors(vectors[train], labels[train], "train"),
        FeatureVectors(vectors[test], labels[test], "test"),
        input_size=0,
        channels=vectors.shape[1],
        augment_flip=False,
        description=description,
    )


def _stacked(column: pa.ChunkedArray, file: Path) -> Tensor:
    lengths = pc.list_value_length(column).fill_null(0).to_pylist()
    for i, length in enumerate(lengths):
        if length == 0 or length != lengths[0]:
            raise InputError(
                f"{file}: row {i} has {length} numbers, row 0 has {lengths[0]}; expected one length"
            )
    flat = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return torch.from_numpy(np.concatenate(flat).astype(np.float32)).view(len(lengths), -1)


def _in_test(splits: list[Any], file: Path) -> Tensor:
    for row, split in enumerate(splits):
        if split != "train" and split not in TEST_WORDS:
            raise InputError(f"{file}: row {row} has split {split!r}; expected train or test")
    return torch.tensor([split in TEST_WORDS for split in splits])


def _load(file: Path) -> NDArray[Any]:
    expected = "); expected a plain array of numbers or names"
    # NumPy's reader of headers stumbles anywhere over other contents.
    with explained(f"{file} cannot be read as .npy (", Exception, after=expected):
        check_regular(file)
        return np.load(file, allow_pickle=False)

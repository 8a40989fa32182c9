import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wcdas.data import FeatureVectors, open_dataset
from wcdas.errors import InputError

VECTORS = np.arange(60, dtype=np.float32).reshape(20, 3)
LABELS = np.array([0] * 12 + [1] * 8)


def write(path, vectors, labels, name="features", **columns):
    kind = pa.list_(pa.float32())
    rows = pa.array([None if row is None else list(row) for row in vectors], kind)
    pq.write_table(pa.table({name: rows, "label": list(labels), **columns}), path)


def check_split(data):
    assert isinstance(data.train, FeatureVectors)
    assert (data.input_size, data.channels, data.augment_flip) == (0, 3, False)
    assert (data.class_counts.tolist(), data.test_counts.tolist()) == ([10, 6], [2, 2])
    for split in (data.train, data.test):
        rows = (split.vectors[:, 0] / 3).long()
        assert split.labels.tolist() == LABELS[rows.numpy()].tolist()
        assert (split.vectors.numpy() == VECTORS[rows.numpy()]).all()


@pytest.mark.parametrize("name", ["features", "embedding", "anything"])
def test_parquet(tmp_path, name):
    write(tmp_path / "x.parquet", VECTORS, LABELS.tolist(), name)
    check_split(open_dataset(tmp_path / "x.parquet"))


def test_parquet_with_vectors_of_fixed_length(tmp_path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.astype(np.float64).ravel()), 3)
    table = pa.table({"features": vectors, "label": LABELS})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    check_split(open_dataset(tmp_path / "x.parquet"))


def test_a_split_column_is_followed(tmp_path):
    split = ["test" if i % 5 == 0 else "train" for i in range(20)]
    names = ["owl" if label else "tit" for label in LABELS]
    write(tmp_path / "x.parquet", VECTORS, names, split=split)
    data = open_dataset(tmp_path / "x.parquet")
    assert data.class_names == ["owl", "tit"]
    assert data.test.vectors[:, 0].tolist() == [0, 15, 30, 45]
    assert data.test.labels.tolist() == [1, 1, 1, 0]
    split[4] = "holdout"
    write(tmp_path / "x.parquet", VECTORS, names, split=split)
    with pytest.raises(InputError, match="row 4 has split 'holdout'; expected train or test"):
        open_dataset(tmp_path / "x.parquet")


@pytest.mark.parametrize("labels", ["x_labels.npy", "x.labels.npy", "other.npy"])
def test_npy(tmp_path, labels):
    np.save(tmp_path / "x.npy", VECTORS.astype(np.float64))
    np.save(tmp_path / labels, LABELS.astype(np.int32))
    option = tmp_path / labels if labels == "other.npy" else None
    check_split(open_dataset(tmp_path / "x.npy", labels=option))


def test_npy_with_names(tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)
    np.save(tmp_path / "x_labels.npy", np.where(LABELS == 0, "b", "a"))
    data = open_dataset(tmp_path / "x.npy")
    assert data.class_names == ["a", "b"]
    assert data.class_counts.tolist() == [6, 10]


@pytest.mark.parametrize("kind", ["parquet", "npy"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_with_the_row(tmp_path, kind, value):
    vectors = VECTORS.copy()
    vectors[[13, 17], 1] = value
    if kind == "parquet":
        write(tmp_path / "x.parquet", vectors, LABELS.tolist())
    else:
        np.save(tmp_path / "x.npy", vectors)
        np.save(tmp_path / "x_labels.npy", LABELS)
    with pytest.raises(InputError, match="NaN or infinity in 2 rows, first in row 13"):
        open_dataset(tmp_path / f"x.{kind}")


@pytest.mark.parametrize(("row", "length"), [(None, 0), ([], 0), ([1.0], 1)])
def test_vectors_of_other_lengths_are_refused(tmp_path, row, length):
    vectors = [*VECTORS[:4], row, *VECTORS[5:]]
    write(tmp_path / "x.parquet", vectors, LABELS.tolist())
    with pytest.raises(InputError, match=f"row 4 has {length} numbers, row 0 has 3"):
        open_dataset(tmp_path / "x.parquet")


class Dangerous:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("which", ["x.npy", "x_labels.npy"])
def test_nothing_is_unpickled(tmp_path, which):
    np.save(tmp_path / "x.npy", VECTORS)
    np.save(tmp_path / "x_labels.npy", LABELS)
    victim = np.array([Dangerous(tmp_path / "executed")] * 20, dtype=object)
    np.save(tmp_path / which, victim, allow_pickle=True)
    with pytest.raises(InputError, match=rf"{which} cannot be read as \.npy"):
        open_dataset(tmp_path / "x.npy")
    (tmp_path / which).write_bytes(pickle.dumps(Dangerous(tmp_path / "executed")))
    with pytest.raises(InputError, match=rf"{which} cannot be read as \.npy"):
        open_dataset(tmp_path / "x.npy")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("vectors", "labels", "message"),
    [
        (VECTORS[0], LABELS, r"x\.npy is float32 \(3,\); expected numbers \(N, d\)"),
        (VECTORS, LABELS[:5], r"x_labels\.npy is int64 \(5,\); expected \(20,\) integers"),
        (VECTORS, LABELS * 1.0, r"x_labels\.npy is float64"),
        (VECTORS, LABELS * 2, "labels have gaps"),
        (VECTORS, LABELS * 0, "one class only"),
    ],
)
def test_bad_arrays_are_refused(tmp_path, vectors, labels, message):
    np.save(tmp_path / "x.npy", vectors)
    np.save(tmp_path / "x_labels.npy", labels)
    with pytest.raises(InputError, match=message):
        open_dataset(tmp_path / "x.npy")


def test_missing_labels_are_named(tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)
    with pytest.raises(InputError, match=r"has no labels; expected them in x_labels\.npy"):
        open_dataset(tmp_path / "x.npy")
    with pytest.raises(InputError, match=r"none\.npy cannot be read"):
        open_dataset(tmp_path / "x.npy", labels=tmp_path / "none.npy")

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from wcdas.data import ArrayImages, BytesImages, open_dataset
from wcdas.errors import InputError


def encoded(value, size=(8, 8), mode="RGB"):
    buffer = io.BytesIO()
    Image.new(mode, size, value).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, images, labels, metadata=None, column="image"):
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": image, "path": None} for image in images]
    table = pa.table({column: pa.array(rows, kind), "label": pa.array(labels)})
    if metadata:
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    pq.write_table(table, path)


def colours(n, **options):
    return [encoded((10 * i, 0, 0), **options) for i in range(n)]


def test_a_file_is_split_and_decoded(tmp_path):
    write(tmp_path / "all.parquet", colours(20), [0] * 10 + [1] * 10)
    data = open_dataset(tmp_path / "all.parquet")
    assert isinstance(data.train, ArrayImages)
    assert (data.input_size, data.channels) == (8, 3)
    assert data.class_counts.tolist() == [8, 8]
    assert data.test_counts.tolist() == [2, 2]
    red = sorted(data.train.pixels[:, 0, 0, 0].tolist() + data.test.pixels[:, 0, 0, 0].tolist())
    assert red == [10 * i for i in range(20)]
    assert all((data.train.pixels[:, 0, 0, 0] >= 100) == (data.train.labels == 1))


@pytest.mark.parametrize("folder", ["", "data"])
def test_files_of_a_folder_are_the_two_sets(tmp_path, folder):
    where = tmp_path / folder
    write(where / "train-00000-of-00002.parquet", colours(3), [0, 1, 0])
    write(where / "train-00001-of-00002.parquet", colours(2), [1, 1])
    write(where / "validation-00000-of-00001.parquet", colours(1), [0])
    write(where / "test-00000-of-00001.parquet", colours(2), [0, 1])
    data = open_dataset(tmp_path)
    assert data.train.labels.tolist() == [0, 1, 0, 1, 1]
    assert data.test.labels.tolist() == [0, 1]
    assert data.description["test_files"] == ["test-00000-of-00001.parquet"]


def test_class_names_from_the_schema_then_beside_then_numbers(tmp_path):
    metadata = {"info": {"features": {"label": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}}
    write(tmp_path / "a" / "x.parquet", colours(4), [0, 0, 1, 1], metadata)
    write(tmp_path / "b" / "x.parquet", colours(4), [0, 0, 1, 1])
    assert open_dataset(tmp_path / "b" / "x.parquet").class_names == ["0", "1"]
    for folder in "ab":
        (tmp_path / folder / "classes.txt").write_text("cat\ndog\n")
    assert open_dataset(tmp_path / "a" / "x.parquet").class_names == ["ant", "bee"]
    assert open_dataset(tmp_path / "b").class_names == ["cat", "dog"]
    (tmp_path / "own.txt").write_text("elk\nfox\n")
    own = open_dataset(tmp_path / "a" / "x.parquet", classes=tmp_path / "own.txt")
    assert own.class_names == ["elk", "fox"]


def test_images_of_many_sizes_stay_encoded(tmp_path):
    images = [encoded(i, size=(200 + i, 300), mode="L") for i in range(6)]
    write(tmp_path / "x.parquet", images, [0, 0, 0, 1, 1, 1])
    data = open_dataset(tmp_path / "x.parquet")
    assert isinstance(data.train, BytesImages)
    assert (data.input_size, data.channels) == (224, 1)
    loaded = [np.asarray(data.train.load(i)) for i in range(len(data.train))]
    assert all(image.shape == (300, 200 + image[0, 0]) for image in loaded)


def test_bad_images_are_named_or_skipped(tmp_path):
    images = colours(10)
    images[3] = images[3][:40]
    write(tmp_path / "train.parquet", images, [0, 1] * 5)
    write(tmp_path / "test.parquet", colours(2), [0, 1])
    with pytest.raises(InputError, match=r"1 of 12 images cannot be used: train/3 cannot be read"):
        open_dataset(tmp_path)
    data = open_dataset(tmp_path, skip_bad=True)
    assert data.class_counts.tolist() == [5, 4]
    assert data.description["skipped"] == 1
    (warning,) = data.warnings
    assert warning.startswith("bad images left out (1): train/3 cannot be read")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 2, 2], r"labels have gaps: .* no training samples of class 1"),
        ([0, 0, -1, 1], "label -1 of sample 2; expected 0 or more"),
        ([0, None, 1, 1], "row 1 has no label"),
        ([0.5, 1.0, 0.0, 1.0], "labels are double; expected integers or strings"),
        ([0, 0, 0, 0], "one class only"),
        ([0, 1, 0, 10**12], "label 1000000000000 with 4 samples"),
        (["Cat", "cat", "Cat", "cat"], "'Cat' and 'cat' differ only by case"),
    ],
)
def test_bad_labels_are_refused(tmp_path, labels, message):
    write(tmp_path / "x.parquet", colours(4), labels)
    with pytest.raises(InputError, match=message):
        open_dataset(tmp_path / "x.parquet")


def test_a_label_beyond_the_class_names(tmp_path):
    write(tmp_path / "x.parquet", colours(4), [0, 0, 1, 2])
    (tmp_path / "classes.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match="label 2 of sample 3, but there are 2 class names"):
        open_dataset(tmp_path / "x.parquet")


def test_paths_without_bytes_are_refused(tmp_path):
    write(tmp_path / "x.parquet", [encoded(1), None], [0, 1])
    with pytest.raises(InputError, match="row 1 has no image bytes"):
        open_dataset(tmp_path / "x.parquet")


def test_other_tables_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [1], "label": [0]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="has the columns a, label; expected an image column"):
        open_dataset(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(InputError, match=r"y\.parquet cannot be read as Parquet"):
        open_dataset(tmp_path / "y.parquet")


def test_a_test_set_without_a_training_set(tmp_path):
    write(tmp_path / "test.parquet", colours(2), [0, 1])
    with pytest.raises(InputError, match=r"has test\.parquet but nothing with “train”"):
        open_dataset(tmp_path)

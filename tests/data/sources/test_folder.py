import os

import numpy as np
import pytest
import torch
from PIL import Image

from wcdas.data import FileImages, open_dataset
from wcdas.data.split import stratified_split
from wcdas.errors import InputError


def picture(path, size=(20, 16), mode="RGB", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    pixels = np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def fill(folder, counts, **options):
    for name, count in counts.items():
        for i in range(count):
            picture(folder / name / f"{i}.png", seed=i, **options)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-200])


def test_a_folder_is_split_by_class(tmp_path):
    fill(tmp_path, {"class10": 10, "class9": 5, "class1": 2})
    data = open_dataset(tmp_path)
    assert isinstance(data.train, FileImages)
    assert data.class_names == ["class1", "class9", "class10"]
    assert data.class_counts.tolist() == [1, 4, 8]
    assert data.test_counts.tolist() == [1, 1, 2]
    together = data.train.paths + data.test.paths
    assert len(set(together)) == 17
    for split in (data.train, data.test):
        for path, label in zip(split.paths, split.labels.tolist(), strict=True):
            assert path.split("/")[0] == data.class_names[label]
    assert data.train.name(0) == data.train.paths[0]
    assert data.train.load(0).size == (20, 16)
    assert data.warnings == []


def test_the_split_follows_the_seed(tmp_path):
    fill(tmp_path, {"a": 20, "b": 20})
    first, again, other = (open_dataset(tmp_path, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_split_sizes_for_every_class_size():
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate(range(1, 60))])
    train, test = stratified_split(labels)
    in_train, in_test = labels[train].bincount(minlength=59), labels[test].bincount(minlength=59)
    assert (in_train >= 1).all()
    assert in_test.tolist() == [0] + [max(1, round(0.2 * n)) for n in range(2, 60)]
    assert sorted(torch.cat([train, test]).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("test_name", ["test", "val", "Test"])
def test_train_and_test_folders(tmp_path, test_name):
    fill(tmp_path / "train", {"a": 3, "b": 2})
    fill(tmp_path / test_name, {"a": 1, "b": 4})
    data = open_dataset(tmp_path)
    assert data.class_counts.tolist() == [3, 2]
    assert data.test_counts.tolist() == [1, 4]
    assert data.test.paths[0] == f"{test_name}/a/0.png"
    assert data.test.load(0).mode == "RGB"


def test_images_below_a_class_folder_count(tmp_path):
    fill(tmp_path, {"a": 2, "b": 2, "b/deeper": 3, "b/.hidden": 5})
    assert (open_dataset(tmp_path).class_counts + open_dataset(tmp_path).test_counts).tolist() == [
        2,
        5,
    ]


@pytest.mark.parametrize(
    ("short", "size"), [(16, 32), (48, 32), (49, 64), (112, 64), (113, 224), (300, 224)]
)
def test_size_follows_the_median_short_side(tmp_path, short, size):
    fill(tmp_path, {"a": 2, "b": 3}, size=(400, short))
    picture(tmp_path / "a" / "large.png", size=(500, 500))
    assert open_dataset(tmp_path).input_size == size


def test_channels_are_one_only_if_all_are_grey(tmp_path):
    fill(tmp_path, {"a": 3, "b": 3}, mode="L")
    grey = open_dataset(tmp_path)
    assert grey.channels == 1
    assert grey.train.load(0).mode == "L"
    picture(tmp_path / "a" / "colour.png")
    assert open_dataset(tmp_path).channels == 3


def test_a_folder_of_a_format_that_cannot_be_read_names_it(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("1.heic", "2.HEIC", "notes"):
        (tmp_path / "a" / name).write_text("x")
    with pytest.raises(InputError, match=r"but 2 \.heic, 1 without extension; expected one folder"):
        open_dataset(tmp_path)


def test_other_files_are_counted_and_hidden_ones_ignored(tmp_path):
    fill(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "a" / "notes.txt").write_text("x")
    (tmp_path / "b" / "table.csv").write_text("x")
    (tmp_path / "a" / ".DS_Store").write_text("x")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("x")
    data = open_dataset(tmp_path)
    assert data.warnings == [
        f"files that are not images, ignored (2) in {tmp_path}: 1 .txt, 1 .csv"
    ]
    assert data.class_names == ["a", "b"]


def test_one_image_and_untested_classes_are_warned_of(tmp_path):
    fill(tmp_path / "train", {"a": 3, "b": 1, "c": 2})
    fill(tmp_path / "test", {"a": 1})
    one, untested = open_dataset(tmp_path).warnings
    assert one.startswith("classes with one image only (1): b;")
    assert untested.startswith("classes without test images (1): c;")


def test_a_single_image_is_trained(tmp_path):
    fill(tmp_path, {"a": 5, "b": 1})
    data = open_dataset(tmp_path)
    assert data.class_counts.tolist() == [4, 1]
    assert data.test_counts.tolist() == [1, 0]
    assert "one image only (1): b" in data.warnings[0]


def test_empty_class_folders_are_dropped_with_a_warning(tmp_path):
    fill(tmp_path, {"a": 3, "c": 3})
    (tmp_path / "b").mkdir()
    data = open_dataset(tmp_path)
    assert data.class_names == ["a", "c"]
    assert data.warnings == ["class folders without images, dropped (1): b"]


def test_bad_images_are_named_or_skipped(tmp_path):
    fill(tmp_path, {"a": 5, "b": 5})
    truncate(tmp_path / "a" / "2.png")
    (tmp_path / "b" / "4.jpg").write_text("no picture")
    with pytest.raises(InputError, match=r"2 of 11 images .*a/2\.png.*b/4\.jpg.*--skip-bad"):
        open_dataset(tmp_path)
    data = open_dataset(tmp_path, skip_bad=True)
    assert len(data.train) + len(data.test) == 9
    assert "a/2.png" not in data.train.paths + data.test.paths
    assert data.description["skipped"] == 2
    assert data.warnings[0].startswith("bad images left out (2): a/2.png cannot be read")


def test_a_class_with_bad_images_only_is_dropped(tmp_path):
    fill(tmp_path, {"a": 4, "b": 1, "c": 4})
    truncate(tmp_path / "b" / "0.png")
    data = open_dataset(tmp_path, skip_bad=True)
    assert data.class_names == ["a", "c"]
    assert data.class_counts.tolist() == [3, 3]
    assert "classes without a readable image are dropped: b" in data.warnings
    for path, label in zip(data.train.paths, data.train.labels.tolist(), strict=True):
        assert path.split("/")[0] == data.class_names[label]


def test_one_class_only(tmp_path):
    fill(tmp_path, {"a": 3})
    with pytest.raises(InputError, match=r"one class only \(a\); expected at least two"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("inside", [None, "a/", "loose.png"])
def test_an_empty_folder(tmp_path, inside):
    if inside == "a/":
        (tmp_path / "a").mkdir()
    elif inside:
        picture(tmp_path / inside)
    with pytest.raises(InputError, match="holds no images in class folders; expected one folder"):
        open_dataset(tmp_path)


def test_names_that_differ_only_by_case(tmp_path):
    fill(tmp_path, {"Cat": 2, "dog": 2})
    (tmp_path / "cat").mkdir()
    if len(os.listdir(tmp_path)) < 3:
        pytest.skip("the file system knows no case")
    with pytest.raises(InputError, match="classes 'Cat' and 'cat' differ only by case"):
        open_dataset(tmp_path)


def test_a_class_that_is_only_tested(tmp_path):
    fill(tmp_path / "train", {"a": 2, "b": 2})
    fill(tmp_path / "test", {"a": 1, "z": 1})
    with pytest.raises(InputError, match="'z' has test images but no training images"):
        open_dataset(tmp_path)


def test_a_file_of_classes_sets_the_order(tmp_path):
    fill(tmp_path / "images", {"a": 2, "b": 2})
    names = tmp_path / "names.txt"
    names.write_text("b\na\n")
    assert open_dataset(tmp_path / "images", classes=names).class_names == ["b", "a"]
    names.write_text("b\n")
    with pytest.raises(InputError, match=r"class 'a' is not in .*names\.txt"):
        open_dataset(tmp_path / "images", classes=names)
    names.write_text("b\na\nc\n")
    with pytest.raises(InputError, match="class 'c' has no images"):
        open_dataset(tmp_path / "images", classes=names)
    with pytest.raises(InputError, match="class names cannot be read from"):
        open_dataset(tmp_path / "images", classes=tmp_path / "none.txt")

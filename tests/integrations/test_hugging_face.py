"""Images from `datasets`: objects and the folders that `save_to_disk` writes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import wcdas
from wcdas.data import BytesImages, FileImages, open_dataset
from wcdas.errors import InputError

datasets = pytest.importorskip("datasets", reason="datasets is not installed")

ONE_EPOCH = {"epochs": 1, "backbone.name": "resnet8"}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def dataset(photographs, counts=(8, 5), side=40, label="label"):
    """Cuts of photographs with names of classes; the sides differ, so that they stay encoded."""
    from PIL import Image

    random, pictures, labels = np.random.RandomState(0), [], []
    for c, count in enumerate(counts):
        photograph = photographs[("china", "flower")[c]]
        for i in range(count):
            top, left = random.randint(100, size=2)
            cut = photograph[top : top + side + i % 2, left : left + side]
            pictures.append(Image.fromarray(cut))
            labels.append(c)
    features = {"image": datasets.Image(), label: datasets.ClassLabel(names=["china", "flower"])}
    return datasets.Dataset.from_dict(
        {"image": pictures, label: labels}, features=datasets.Features(features)
    )


def pixels(split):
    return [np.asarray(split.load(i)).tolist() for i in range(len(split))]


@pytest.mark.parametrize("label", ["label", "species"])
def test_an_object_is_split_as_folders_are(photographs, label):
    given = dataset(photographs, (10, 5), label=label)
    data = open_dataset(given)
    assert isinstance(data.train, BytesImages)
    assert data.class_names == ["china", "flower"]
    assert data.class_counts.tolist() == [8, 4]
    assert data.test_counts.tolist() == [2, 1]
    assert (data.input_size, data.channels) == (32, 3)
    found = sorted(pixels(data.train) + pixels(data.test))
    assert found == sorted(np.asarray(image).tolist() for image in given["image"])


def test_splits_keep_their_rows_in_order(photographs):
    given = dataset(photographs)
    # A selection has an index of its own above the table.
    splits = datasets.DatasetDict(
        train=given.select([12, 0, 1, 9]), validation=given.select([3]), test=given.select([2, 11])
    )
    data = open_dataset(splits)
    assert data.train.labels.tolist() == [1, 0, 0, 1]
    assert data.test.labels.tolist() == [0, 1]
    assert pixels(data.test) == [np.asarray(given[i]["image"]).tolist() for i in (2, 11)]
    assert data.description == {"source": "datasets", "splits": ["train", "test"]}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_saved_folder_is_the_object_again(photographs, tmp_path, shards):
    given = dataset(photographs)
    given.save_to_disk(tmp_path / "one", num_shards=shards)
    assert open_dataset(tmp_path / "one").fingerprint == open_dataset(given).fingerprint
    splits = given.train_test_split(0.3, seed=0)
    splits.save_to_disk(tmp_path / "two")
    assert open_dataset(tmp_path / "two").fingerprint == open_dataset(splits).fingerprint


def test_a_saved_folder_is_mapped_and_not_read(photographs, tmp_path):
    import pyarrow as pa

    dataset(photographs, (60, 60), side=180).save_to_disk(tmp_path / "saved")
    before = pa.total_allocated_bytes()
    data = open_dataset(tmp_path / "saved")
    assert sum(len(memoryview(image)) for image in data.train.encoded) > 3_000_000
    assert pa.total_allocated_bytes() - before < 300_000


def test_images_by_path_are_files(pictures, tmp_path):
    folder = pictures(tmp_path / "pictures", china=6, flower=4)
    given = datasets.load_dataset(
        "imagefolder", data_dir=str(folder), split="train", cache_dir=str(tmp_path / "cache")
    )
    data, own = open_dataset(given), open_dataset(folder)
    assert isinstance(data.train, FileImages)
    assert data.name == "datasets:imagefolder"
    assert (data.class_names, data.class_counts.tolist()) == (own.class_names, [5, 3])
    names = {Path(data.train.name(i)) for i in range(len(data.train))}
    assert names <= set(folder.rglob("*.*"))
    given.save_to_disk(tmp_path / "saved")
    assert open_dataset(tmp_path / "saved").class_counts.tolist() == [5, 3]


def test_paths_in_a_saved_folder_are_never_opened(pictures, tmp_path):
    folder = pictures(tmp_path / "pictures", china=2, flower=2)
    rows = {"image": [{"bytes": None, "path": str(p)} for p in folder.rglob("*.*")]}
    features = datasets.Features(
        image={"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
        label=datasets.Value("int64"),
    )
    datasets.Dataset.from_dict(rows | {"label": [0, 0, 1, 1]}, features=features).save_to_disk(
        tmp_path / "saved"
    )
    with pytest.raises(InputError, match="row 0 has no image bytes"):
        open_dataset(tmp_path / "saved")


def test_the_folder_cannot_name_files_outside_of_it(photographs, tmp_path):
    dataset(photographs).save_to_disk(tmp_path / "other")
    dataset(photographs).save_to_disk(tmp_path / "saved")
    outside = "../other/data-00000-of-00001.arrow"
    state = tmp_path / "saved" / "state.json"
    content = json.loads(state.read_text()) | {"_data_files": [{"filename": outside}]}
    state.write_text(json.dumps(content))
    (tmp_path / "saved" / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(InputError, match=r"saved/data-00000-of-00001\.arrow cannot be read"):
        open_dataset(tmp_path / "saved")


def test_train_resume_and_evaluate_an_object(photographs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    splits = dataset(photographs, (12, 6)).train_test_split(0.3, seed=0)
    options = {"settings": ONE_EPOCH, "device": "cpu", "workers": 2}
    run = wcdas.train(splits, "softmax", **options, report=False)
    assert run.path == Path("runs/dataset-softmax-s0-1")
    assert run.metrics["test_images"] == 6
    assert run.model.class_names == ["china", "flower"]
    assert wcdas.evaluate_run(run, splits)["top1"] == run.metrics["top1"]
    assert wcdas.train(splits, out=run.path, resume=True, report=False).metrics == run.metrics
    with pytest.raises(InputError, match=r"datasets:dataset was a `datasets` object in memory; h"):
        wcdas.evaluate_run(run)
    assert next(iter(wcdas.check_data(splits))).startswith("datasets:dataset: 12 training")

    splits.save_to_disk("saved")
    again = wcdas.train("saved", "softmax", **options, report=False)
    assert again.metrics == run.metrics | {"dataset": "saved"}
    torch.testing.assert_close(
        again.model.predict([splits["test"][0]["image"]]),
        run.model.predict([splits["test"][0]["image"]]),
    )


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda d: d.to_iterable_dataset(), r"expected a name, a path, or a Dataset or DatasetDic"),
        (lambda d: d.remove_columns("label"), "expected a column “label”"),
        (lambda d: d.remove_columns("image"), "expected an image column"),
        (lambda d: datasets.DatasetDict(), "has no splits; expected train"),
        (lambda d: datasets.DatasetDict(test=d), "has test but nothing with “train”"),
        (lambda d: d.select([]), "holds no samples"),
        (lambda d: {"train": 3}, r"data is a builtins\.dict; expected a name, a path, or a Data"),
    ],
)
def test_what_cannot_be_used_is_one_line(photographs, make, line):
    with pytest.raises(InputError, match=line) as caught:
        open_dataset(make(dataset(photographs)))
    assert "\n" not in str(caught.value)


def test_a_sweep_wants_a_folder(photographs):
    with pytest.raises(InputError, match="save it with save_to_disk and name the folder"):
        wcdas.sweep(dataset(photographs), ["softmax"], report=False)

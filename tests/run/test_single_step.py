"""Where an epoch is a single step, the user is told before training, with what to set."""

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import wcdas
from wcdas.data.dataset import Dataset
from wcdas.data.split import holdout
from wcdas.run.settings import read_request


def told(data: Path, out: Path, **settings: object) -> list[str]:
    """The notes before a run on the data."""
    said = StringIO()
    wcdas.train(
        data,
        "softmax",
        settings={"epochs": 1, **settings},
        out=out,
        device="cpu",
        workers=0,
        report=False,
        console=Console(file=said, width=500),
    )
    return re.findall(r"^note: (.*)$", said.getvalue(), re.MULTILINE)


def test_a_note_before_training_says_what_to_set(pictures, tmp_path):
    folder = pictures(tmp_path / "x", china=40, flower=20)  # 48 for training, 1 of them held out
    scratch = {"backbone.weights": "", "augment.flip": True}
    (note,) = told(folder, tmp_path / "one", batch_size=128, **scratch)
    assert note == (
        "with 47 training images (1 held out) and batches of 128 an epoch is a single step; "
        "take smaller batches with --set batch_size=8"
    )
    assert told(folder, tmp_path / "two", batch_size=8, **scratch) == []
    assert told(folder, tmp_path / "three", **scratch) == []


def test_features_are_samples(features, tmp_path):
    (note,) = told(features, tmp_path / "run", batch_size=512)
    assert "training samples" in note


@pytest.mark.parametrize(("batch_size", "single"), [(200, True), (160, True), (155, False)])
def test_it_is_where_there_are_no_two_batches(batch_size, single):
    dataset: Dataset = wcdas.open_dataset("digits-lt")
    labels, classes = dataset.train.labels, dataset.num_classes
    kept = len(holdout(labels, classes, 0.05, key=7)[0])
    assert 2 * 155 <= kept < 2 * 160
    request = read_request(None, {"batch_size": batch_size}, "softmax")
    _, notes = request.resolve(dataset, "digits-lt", "cpu", skip_bad=False)
    assert [f"with {kept} training" in note for note in notes] == [True] * single

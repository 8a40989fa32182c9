"""A model is never measured on what it was trained on."""

import numpy as np
import pytest

import wcdas
from wcdas.errors import InputError


@pytest.fixture(scope="module")
def memorised(tmp_path_factory):
    """Random vectors, which can be learnt by heart and nothing else."""
    folder = tmp_path_factory.mktemp("memorised")
    generator = np.random.default_rng(0)
    np.save(folder / "x.npy", generator.normal(size=(200, 64)).astype("float32"))
    np.save(folder / "x_labels.npy", np.arange(200) % 4)
    settings = {"epochs": 20, "calibration.holdout": 0.0}
    run = wcdas.train(
        folder / "x.npy",
        "softmax",
        settings=settings,
        out=folder / "run",
        device="cpu",
        report=False,
    )
    return folder, run


def grow(folder, name):
    vectors, labels = np.load(folder / "x.npy"), np.load(folder / "x_labels.npy")
    np.save(folder / f"{name}.npy", np.concatenate([vectors, vectors[:4] + 1]))
    np.save(folder / f"{name}_labels.npy", np.concatenate([labels, labels[:4]]))


def test_the_own_test_set_is_the_one_of_training(memorised):
    folder, run = memorised
    expected = run.metrics["balanced_accuracy"]
    for data in (None, folder / "x.npy"):
        metrics = wcdas.evaluate_run(run, data, device="cpu")
        assert metrics["balanced_accuracy"] == pytest.approx(expected)
        assert metrics["test_images"] == 40


def test_another_split_of_the_own_data_is_refused(memorised):
    folder, run = memorised
    for data in (None, folder / "x.npy"):
        with pytest.raises(InputError, match="the data has changed since the run started"):
            wcdas.evaluate_run(run, data, device="cpu", seed=1)


def test_changed_data_is_refused(memorised):
    folder, run = memorised
    grow(folder, "more")
    kept = [(folder / f"x{end}").read_bytes() for end in (".npy", "_labels.npy")]
    try:
        for end in (".npy", "_labels.npy"):
            (folder / f"x{end}").write_bytes((folder / f"more{end}").read_bytes())
        for call in (
            wcdas.evaluate_run,
            lambda r, **o: wcdas.embed(r, None, folder / "f.parquet", **o),
        ):
            with pytest.raises(InputError, match="the data has changed since the run started"):
                call(run, device="cpu")
    finally:
        for end, content in zip((".npy", "_labels.npy"), kept, strict=True):
            (folder / f"x{end}").write_bytes(content)


def test_other_data_without_a_test_set_is_measured_whole(memorised):
    folder, run = memorised
    grow(folder, "other")
    assert wcdas.evaluate_run(run, folder / "other.npy", device="cpu")["test_images"] == 204

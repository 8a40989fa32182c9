"""The work fails: one line, exit status 1, and what was done is kept."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import wcdas
from wcdas.errors import InputError, WorkError
from wcdas.run import checkpoint
from wcdas.run import loop as loop_module
from wcdas.run.folder import failures_explained
from wcdas.run.stage import StageTraining


def test_a_loss_that_is_no_number(tmp_path, start):
    child = start("train", "--out", tmp_path / "run", "--set", "epochs=2", "lr=1e20")
    assert child.status() == 1
    line = child.output.read_text().splitlines()[-1]
    assert "NaN or infinite in stage representation, epoch 1, step " in line
    assert "; start a new one with a lower rate, --set lr=…, or with stages.repres" in line
    assert "checkpoint" not in line  # there is none yet
    assert "Traceback" not in child.output.read_text()
    with pytest.raises(InputError, match=r"run failed: the loss became NaN .* a lower rate"):
        wcdas.load(tmp_path / "run")
    with pytest.raises(InputError, match="is not empty; choose another"):
        wcdas.train(settings={"lr": 0.1}, out=tmp_path / "run", report=False)


def test_the_last_good_checkpoint_is_kept(tmp_path, start, written):
    """The first stage goes well; the second one's rate is far too high."""
    run = tmp_path / "run"
    settings = ["epochs=2", "stages.classifier.lr=1e30"]
    child = start("train", "--method", "wcdas", "--out", run, "--set", *settings)
    assert child.status() == 1, child.output.read_text()
    assert "stage classifier, epoch 1, step" in child.output.read_text()
    assert f"; checkpoints from before are kept in {run}; start" in child.output.read_text()
    state = checkpoint.load_latest(run / "checkpoint")
    assert (state["stage"], state["epoch"], state["step"]) == (0, 2, 0)
    assert all(value.isfinite().all() for value in state["model"].values())
    assert [line["epoch"] for line in written.log(run)] == [1, 2]
    assert not (run / "model.safetensors").exists()


def test_weights_that_are_no_numbers_are_not_saved(make_loop):
    """The last step of the epoch has a finite loss and ruins the weights."""
    loop = make_loop(
        backbone="identity",
        one={"epochs": 2, "batch_size": 400, "lr": 1e35, "weight_decay": 1e10, "augment": "none"},
    )
    with pytest.raises(WorkError, match="stage one, epoch 1, step 1;"):
        loop.train()
    assert checkpoint.load_latest(loop.run.folder.checkpoints) is None


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 16 MB, enough for a run of one checkpoint at a time and two kept."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk(small_disk, tmp_path, start, written):
    train = ("train", "--no-report", "--out")
    arguments = ["--method", "wcdas", "--set", "epochs=2"]
    whole = start(*train, tmp_path / "whole", *arguments)
    run, filler = small_disk / "run", small_disk / "filler"
    filler.write_bytes(bytes(9_500_000))  # a checkpoint of 3.8 MB fits, two do not
    child = start(*train, run, *arguments)
    assert child.status() == 1, child.output.read_text()
    text = child.output.read_text()
    assert "Traceback" not in text
    assert f"the disk is full; make room and go on with: wcdas train --out {run} --resume" in text
    kept = list((run / "checkpoint").iterdir())
    assert kept
    assert checkpoint.load_latest(run / "checkpoint") is not None
    assert start(*train, run, "--resume").status() == 1  # still full
    filler.unlink()
    again = start(*train, run, "--resume")
    assert again.status() == 0, again.output.read_text()
    assert whole.status() == 0
    written.assert_same(run, tmp_path / "whole")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_out_of_memory_ends_with_advice(error, tmp_path):
    with (
        pytest.raises(WorkError, match=r"batch_size.*accumulate.*input_size"),
        failures_explained(tmp_path),
    ):
        raise error


@pytest.mark.parametrize("error", [RuntimeError("a bug"), PermissionError(13, "no")])
def test_other_errors_are_not_hidden(error, tmp_path):
    with pytest.raises(type(error), match=r"a bug|no"), failures_explained(tmp_path):
        raise error


FAST = {"epochs": 1, "evaluate_every": 1}


@pytest.fixture
def own_features(features, tmp_path):
    """Features that a test may change."""
    return Path(shutil.copytree(features.parent, tmp_path / "features")) / features.name


@pytest.fixture
def unfinished(own_features, tmp_path):
    """A run on features whose model has not been written yet."""
    run = wcdas.train(
        own_features, "wcdas", settings=FAST, out=tmp_path / "run", device="cpu", report=False
    ).path
    (run / "model.safetensors").unlink()
    return run


@pytest.mark.parametrize(
    ("given", "difference"),
    [
        ({"settings": {"epochs": 2}}, "stages.representation.epochs: 1 → 2"),
        ({"settings": {"stages.classifier.lr": 0.7}}, r"stages.classifier.lr: .* → 0.7"),
        ({"settings": {"head.init": 1.0}}, "head.init: None → 1.0"),
        ({"method": "softmax"}, "method: wcdas → softmax"),
        ({"seed": 5}, "seed: 0 → 5"),
        ({"data": "digits-lt"}, "data.source: .*pixels.npy → digits-lt"),
    ],
)
def test_a_changed_recipe_is_refused(unfinished, given, difference):
    with pytest.raises(InputError, match=f"started otherwise .*{difference}"):
        wcdas.train(out=unfinished, resume=True, device="cpu", **given, report=False)


def test_a_changed_recipe_file_is_refused(unfinished, tmp_path):
    recipe = tmp_path / "own.toml"
    recipe.write_text("[stages.classifier]\nepochs = 1\n")
    wcdas.train(out=unfinished, resume=True, recipe=recipe, device="cpu", report=False)
    (unfinished / "model.safetensors").unlink()
    recipe.write_text("[stages.classifier]\nepochs = 9\n")
    with pytest.raises(InputError, match=r"stages.classifier.epochs: 1 → 9"):
        wcdas.train(out=unfinished, resume=True, recipe=recipe, device="cpu", report=False)


def test_changed_data_is_refused(unfinished, own_features):
    labels = np.load(own_features.with_name("pixels_labels.npy"))
    labels[0] = 1
    np.save(own_features.with_name("pixels_labels.npy"), labels)
    with pytest.raises(
        InputError, match=r"data has changed since .*training samples in 10 classes"
    ):
        wcdas.train(out=unfinished, resume=True, device="cpu", report=False)


def test_the_same_again_is_resumed(unfinished, own_features):
    (unfinished / "failure.txt").write_text("the loss became NaN\n")
    run = wcdas.train(
        own_features,
        "wcdas",
        settings=FAST,
        seed=0,
        out=unfinished,
        resume=True,
        device="cpu",
        report=False,
    )
    assert (run.path / "model.safetensors").exists()
    assert not (run.path / "failure.txt").exists()


def test_resuming_without_a_run(tmp_path):
    with pytest.raises(InputError, match=r"holds no run; expected a run.toml"):
        wcdas.train(out=tmp_path, resume=True, report=False)
    with pytest.raises(InputError, match="name its folder with --out"):
        wcdas.train(resume=True, report=False)


def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "something").write_text("")
    with pytest.raises(InputError, match=r"is not empty; choose another"):
        wcdas.train(out=tmp_path, report=False)
    with pytest.raises(InputError, match="is a file"):
        wcdas.train(out=tmp_path / "something", report=False)
    assert [file.name for file in tmp_path.iterdir()] == ["something"]


def test_outputs_that_are_no_numbers_end_a_run(tmp_path, monkeypatch):
    """The loss is finite: batches are normalised by their own mean, test images by the spoilt."""

    def spoil(model, start):
        model.backbone.bn1.running_mean.fill_(torch.nan)

    spoilt = replace(wcdas.METHODS["softmax"], begin_stage=spoil)
    monkeypatch.setitem(wcdas.METHODS, "spoilt", spoilt)
    out = tmp_path / "run"
    with pytest.raises(WorkError, match="outputs became NaN"):
        wcdas.train(method="spoilt", settings={"epochs": 1}, out=out, device="cpu", report=False)
    assert "lower rate" in (out / "failure.txt").read_text(encoding="utf-8")


class Capturable(StageTraining):
    """A stage as on a GPU, where its step should be one CUDA graph."""

    capturable = property(lambda self: True, lambda self, value: None)


def test_why_a_step_is_no_cuda_graph_is_written_down(make_loop, monkeypatch):
    def refuse(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(loop_module, "StageTraining", Capturable)
    monkeypatch.setattr(loop_module, "capture_step", refuse)
    loop = make_loop("linear", "identity", one={"epochs": 2})
    loop.train()
    told = [line["eager"] for line in loop.run.folder.read_log()]
    assert told == 2 * ["operation not permitted when stream is capturing"]


def test_too_little_memory_for_a_cuda_graph_is_no_reason_to_go_on_slowly(make_loop, monkeypatch):
    def refuse(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(loop_module, "StageTraining", Capturable)
    monkeypatch.setattr(loop_module, "capture_step", refuse)
    loop = make_loop("linear", "identity", one={"epochs": 2})
    told = r"^out of memory; lower --set batch_size=…"
    with pytest.raises(WorkError, match=told), failures_explained(loop.run.folder.path):
        loop.train()

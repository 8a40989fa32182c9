"""Two processes under torchrun end where one does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import wcdas

TORCHRUN = Path(sys.executable).with_name("torchrun")
# 0.1 of the images are held out, so that the temperature is fitted on both processes' logits.
SETTINGS = {"epochs": 4, "calibration.holdout": 0.1, "evaluate_every": 4}


@pytest.fixture
def torchrun(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    started = []

    def run(*arguments):
        command = [TORCHRUN, "--standalone", "--nproc-per-node", "2", "-m", "wcdas.cli", "train"]
        child = subprocess.Popen(
            [*map(str, command), "--no-report", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        return child

    yield run
    for child in started:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def assert_close(run, other):
    """The same weights and metrics, to float tolerance."""
    first, second = (load_file(path / "model.safetensors") for path in (run, other))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)
    first, second = (json.loads((path / "metrics.json").read_text()) for path in (run, other))
    assert first["top1"] > 0.3
    for name in ("top1", "top5", "balanced_accuracy", "many", "medium", "few"):
        assert first[name] == second[name], name
    for name in ("ece", "nll", "temperature"):
        assert first[name] == pytest.approx(second[name], rel=1e-3), name


@pytest.mark.parametrize("method", ["wcdas", "wcdas-meta"])
def test_two_processes_end_where_one_does(method, features, tmp_path, torchrun, written):
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    two = torchrun(features, "--method", method, "--out", tmp_path / "two", "--set", *settings)
    one = wcdas.train(
        features, method, settings=SETTINGS, out=tmp_path / "one", device="cpu", report=False
    )
    output = two.communicate(timeout=120)[0]
    assert two.returncode == 0, output
    assert_close(tmp_path / "two", one.path)
    logs = [written.log(path) for path in (one.path, tmp_path / "two")]
    for first, second in zip(*logs, strict=True):
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-4)
        assert first["train_accuracy"] == pytest.approx(second["train_accuracy"])
        assert first["angle"] == pytest.approx(second["angle"], rel=1e-4)
        if "class_probabilities" in first:
            shares = [line["class_probabilities"] for line in (first, second)]
            assert shares[0] == pytest.approx(shares[1], rel=1e-3)


def test_stopped_and_resumed_by_two_processes(features, tmp_path, torchrun, written):
    """SIGTERM to torchrun stops both processes after the same step."""
    settings = {"epochs": 40, "evaluate_every": 40}
    given = ["--set", *(f"{key}={value}" for key, value in settings.items())]
    one = wcdas.train(
        features, "softmax", settings=settings, out=tmp_path / "one", device="cpu", report=False
    )
    run = tmp_path / "run"
    child = torchrun(features, "--method", "softmax", "--out", run, *given)
    while len(written.log(run)) < 2:
        assert child.poll() is None, child.communicate()[0]
        time.sleep(0.01)
    child.terminate()
    output = child.communicate(timeout=60)[0]
    assert f"go on with: wcdas train --out {run} --resume" in output
    assert not (run / "model.safetensors").exists()
    child = torchrun("--out", run, "--resume")
    output = child.communicate(timeout=120)[0]
    assert child.returncode == 0, output
    assert_close(run, one.path)
    lines = [written.log(path) for path in (run, one.path)]
    assert [line["loss"] for line in lines[0]] == pytest.approx([x["loss"] for x in lines[1]])

"""A run that is killed and resumed ends as if nothing had happened, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

EPOCHS = 3, 4
SETTINGS = [
    f"stages.representation.epochs={EPOCHS[0]}",
    f"stages.classifier.epochs={EPOCHS[1]}",
    "evaluate_every=2",
    "backbone.name=resnet8",
]
TRAIN = ("train", "--no-report", "--out")
EVERY_STEP, EVERY_EPOCH = 0.0, 1e9

DEFERRED = f"""
[backbone]
name = "resnet8"
[stages.representation]
epochs = {EPOCHS[0]}
loss = "ldam"
[stages.deferred]
epochs = {EPOCHS[1]}
augment = "none"
batch_size = 32
loss = "ldam"
sampler = "class-balanced"
optimizer = "continue"
"""


@pytest.fixture
def deferred(tmp_path):
    """Deferred re-balancing: one optimizer and one schedule over two stages."""
    file = tmp_path / "deferred.toml"
    file.write_text(DEFERRED)
    return ["--method", "softmax", "--recipe", file]


def moments(run, written):
    """Conditions that hold inside the first stage, between the stages, and inside the second."""

    def logged(low, high):
        return lambda: low <= len(written.log(run)) <= high

    first, second = EPOCHS
    return {
        "stage 1": logged(1, first - 1),
        "between": logged(first, first),
        "stage 2": logged(first + 1, first + second - 1),
    }


def kill_and_resume(run, arguments, start, written, checkpoint_seconds, seed):
    """Kill a run at a random moment in stage 1, between the stages and in stage 2."""
    pause = random.Random(seed)
    again = []
    for moment, reached in moments(run, written).items():
        child = start(*TRAIN, run, *arguments, *again, checkpoint_seconds=checkpoint_seconds)
        child.wait_for(reached)
        if moment != "between":
            time.sleep(pause.uniform(0, 0.04))
        child.process.kill()
        assert child.status() == -9, child.output.read_text()
        again = ["--resume"]
    child = start(*TRAIN, run, "--resume", checkpoint_seconds=checkpoint_seconds)
    assert child.status() == 0, child.output.read_text()


@pytest.mark.parametrize(
    ("method", "settings", "checkpoint_seconds"),
    [
        ("wcdas-meta", ["stages.classifier.sampler_options.lr=0.3"], EVERY_STEP),
        ("wcdas", ["stages.representation.ema=0.9", "stages.classifier.ema=0.8"], EVERY_STEP),
        (
            "wcdas",
            ["stages.representation.mixup=0.4", "stages.classifier.head=fresh"],
            EVERY_EPOCH,
        ),
    ],
    ids=["meta", "ema", "mixup"],
)
def test_killed_and_resumed(method, settings, checkpoint_seconds, tmp_path, start, written):
    arguments = ["--method", method, "--set", *SETTINGS, *settings]
    whole = start(*TRAIN, tmp_path / "whole", *arguments)
    assert whole.status() == 0, whole.output.read_text()
    kill_and_resume(tmp_path / "killed", arguments, start, written, checkpoint_seconds, method)
    written.assert_same(tmp_path / "killed", tmp_path / "whole")


def test_a_continued_optimizer_survives(deferred, tmp_path, start, written):
    whole = start(*TRAIN, tmp_path / "whole", *deferred)
    assert whole.status() == 0, whole.output.read_text()
    kill_and_resume(tmp_path / "killed", deferred, start, written, EVERY_STEP, 1)
    written.assert_same(tmp_path / "killed", tmp_path / "whole")
    rates = [line["lr"] for line in written.log(tmp_path / "whole")]
    assert rates[2:] == sorted(rates[2:], reverse=True)  # one cosine, after its warm-up
    assert rates[-1] < 0.01 * max(rates)


def test_the_command_line_killed_and_resumed(tmp_path, written, monkeypatch):
    """As a user has it: a new interpreter, epoch checkpoints only, killed in every part."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def command(run, *more):
        arguments = [sys.executable, "-m", "wcdas.cli", "train", "--out", run, *more]
        return subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    whole = command(tmp_path / "whole", "--set", *SETTINGS)
    killed = tmp_path / "killed"
    again = ["--set", *SETTINGS]
    for reached in moments(killed, written).values():
        with command(killed, *again) as child:
            while not reached():
                assert child.poll() is None, child.communicate()
                time.sleep(0.002)
            child.kill()
        assert child.returncode == -9
        again = ["--resume"]
    with command(killed, "--resume") as child:
        text = child.communicate()[0]
    assert child.returncode == 0, text
    assert whole.wait(60) == 0
    whole.stdout.close()
    written.assert_same(killed, tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_resumed(number, tmp_path, start, written):
    arguments = ["--set", *SETTINGS]
    whole = start(*TRAIN, tmp_path / "whole", *arguments)
    run = tmp_path / "stopped"
    child = start(*TRAIN, run, *arguments)
    child.wait_for(lambda: len(written.log(run)) == 1)
    os.kill(child.process.pid, number)
    assert child.status() == 130
    assert f"stopped; go on with: wcdas train --out {run} --resume" in child.output.read_text()
    assert not (run / "model.safetensors").exists()
    assert start(*TRAIN, run, "--resume").status() == 0
    assert whole.status() == 0
    written.assert_same(run, tmp_path / "whole")


def test_a_finished_run_resumes_to_its_table(tmp_path, start):
    run = tmp_path / "run"
    assert start(*TRAIN, run, "--set", "epochs=1").status() == 0
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()}
    again = start(*TRAIN, run, "--resume")
    assert again.status() == 0
    assert "few (< 20)" in again.output.read_text()
    assert {f: f.stat().st_mtime_ns for f in run.rglob("*") if f.is_file()} == before

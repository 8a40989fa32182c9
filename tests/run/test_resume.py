"""A run that is killed and resumed ends as if nothing had happened, bit for bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).parents[1] / "child.py"
EPOCHS = 2, 3
SETTINGS = [
    f"stages.representation.epochs={EPOCHS[0]}",
    f"stages.classifier.epochs={EPOCHS[1]}",
    "evaluate_every=2",
    "backbone.name=resnet8",
]
TRAIN = ("train", "--no-report", "--out")
EVERY_STEP, EVERY_EPOCH = 0.0, 1e9
# Epochs logged before, and the step: inside both stages, and where the second begins.
STAGE_1, BETWEEN, STAGE_2 = (1, 3), (EPOCHS[0], 0), (EPOCHS[0] + 1, 5)
KILLED = [("kill", *STAGE_1), ("kill", *BETWEEN), ("kill", *STAGE_2)]
TORN = [("tear", *STAGE_1), ("tear", *BETWEEN), ("tear", *STAGE_2)]

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


def kill_and_resume(run, arguments, start, killed, checkpoint_seconds):
    """Kill a run in stage 1, where stage 2 begins, and inside it."""
    again = []
    for happens in killed:
        child = start(
            *TRAIN,
            run,
            *arguments,
            *again,
            checkpoint_seconds=checkpoint_seconds,
            happens=happens,
        )
        assert child.status() == -9, child.output.read_text()
        again = ["--resume"]
    child = start(*TRAIN, run, "--resume", checkpoint_seconds=checkpoint_seconds)
    assert child.status() == 0, child.output.read_text()
    assert "going on after epoch" in child.output.read_text()


@pytest.mark.parametrize(
    ("method", "settings", "checkpoint_seconds", "killed"),
    [
        (
            "wcdas-meta",
            [
                "stages.representation.ema=0.9",
                "stages.classifier.ema=0.8",
                "stages.classifier.sampler_options.lr=0.3",
            ],
            EVERY_STEP,
            TORN,
        ),
        (
            "wcdas",
            ["stages.representation.mixup=0.4", "stages.classifier.head=fresh"],
            EVERY_EPOCH,
            KILLED,
        ),
        (
            "wcdas",
            [
                "stages.representation.cutmix=1",
                "stages.representation.cutmix_share=0.5",
                "stages.representation.cutmix_sampler=class-balanced",
                "stages.classifier.mixup=0.4",
                "stages.classifier.cutmix=1",
                "stages.classifier.cutmix_sampler=square-root",
                "stages.classifier.cutmix_rest=1",
            ],
            EVERY_EPOCH,
            KILLED,
        ),
    ],
    ids=["meta and ema", "mixup", "cutmix"],
)
def test_killed_and_resumed(method, settings, checkpoint_seconds, killed, tmp_path, start, written):
    arguments = ["--method", method, "--set", *SETTINGS, *settings]
    whole = start(*TRAIN, tmp_path / "whole", *arguments)
    kill_and_resume(tmp_path / "killed", arguments, start, killed, checkpoint_seconds)
    assert whole.status() == 0, whole.output.read_text()
    written.assert_same(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_a_continued_optimizer_survives(deferred, tmp_path, start, written):
    whole = start(*TRAIN, tmp_path / "whole", *deferred)
    kill_and_resume(tmp_path / "killed", deferred, start, KILLED, EVERY_STEP)
    assert whole.status() == 0, whole.output.read_text()
    written.assert_same(tmp_path / "killed", tmp_path / "whole")
    rates = [line["lr"] for line in written.log(tmp_path / "whole")]
    assert rates[1:] == sorted(rates[1:], reverse=True)  # one cosine, after its warm-up
    assert rates[-1] < 0.01 * max(rates)


@pytest.mark.slow
def test_the_command_line_killed_and_resumed(tmp_path, written):
    """As a user has it: a new interpreter, epoch checkpoints only, killed in the second stage."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    given = ["--method", "softmax", "--set", "epochs=1", "--out"]
    commands = [
        [*("-m", "wcdas.cli", "train"), *given, whole],
        [CHILD, "kill", "0", "3", "train", *given, killed],
        [*("-m", "wcdas.cli", "train"), "--out", killed, "--resume"],
    ]
    for command, status in zip(commands, (0, -9, 0), strict=True):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
    written.assert_same(killed, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_and_resumed(number, tmp_path, start, written):
    arguments = ["--method", "softmax", "--set", "epochs=2", "backbone.name=resnet8"]
    whole = start(*TRAIN, tmp_path / "whole", *arguments)
    run = tmp_path / "stopped"
    child = start(*TRAIN, run, *arguments, happens=("hold", 1, 3))
    child.wait_for(lambda: written.log(run))
    os.kill(child.process.pid, number)
    assert child.status() == 128 + number
    assert f"stopped; go on with: wcdas train --out {run} --resume" in child.output.read_text()
    assert not (run / "model.safetensors").exists()
    assert start(*TRAIN, run, "--resume").status() == 0
    assert whole.status() == 0
    written.assert_same(run, tmp_path / "whole")


def test_a_finished_run_resumes_to_its_table(tmp_path, start):
    run = tmp_path / "run"
    settings = ["--set", "epochs=1", "backbone.name=resnet8"]
    assert start(*TRAIN, run, *settings).status() == 0
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()}
    again = start(*TRAIN, run, "--resume")
    assert again.status() == 0
    assert "few (< 20)" in again.output.read_text()
    assert {f: f.stat().st_mtime_ns for f in run.rglob("*") if f.is_file()} == before

"""Two processes, as torchrun starts them and under torchrun, end where one does."""

import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed import TCPStore

import wcdas
from wcdas.backbones import create_backbone

TORCHRUN = Path(sys.executable).with_name("torchrun")
WCDAS = ("-m", "wcdas.cli")
AFTER_AN_EPOCH = ("hold", 1, 0)
CHILD = Path(__file__).parents[1] / "child.py"
HELD = (CHILD, *AFTER_AN_EPOCH)
LAUNCHED = {"TORCHELASTIC_RUN_ID": "1"}
NEVER = 1e9
# 0.1 of the images are held out, so that the temperature is fitted on both processes' logits.
SETTINGS = {"epochs": 4, "calibration.holdout": 0.1, "evaluate_every": 4}


@pytest.fixture
def torchrun(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    started = []

    def run(*arguments, program=WCDAS):
        command = [TORCHRUN, "--standalone", "--nproc-per-node", "2", *program, "train"]
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
            child.wait()
        child.stdout.close()


def given(settings):
    return ["--set", *(f"{key}={value}" for key, value in settings.items())]


def assert_close(run, other):
    """The same weights to float tolerance, and the metrics that these weights have."""
    first, second = (load_file(path / "model.safetensors") for path in (run, other))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)
    first, second = (json.loads((path / "metrics.json").read_text()) for path in (run, other))
    alone = wcdas.evaluate_run(run, device="cpu")
    for name in ("top1", "top5", "balanced_accuracy", "medium", "few"):
        assert first[name] == alone[name], name
    for name in ("ece", "nll", "temperature"):
        assert first[name] == pytest.approx(second[name], rel=1e-3), name


def assert_same_log(run, other, written):
    logs = [written.log(path) for path in (run, other)]
    for first, second in zip(*logs, strict=True):
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-4)
        right = second["train_accuracy"]
        assert first["train_accuracy"] == pytest.approx(right, abs=0.004)  # one image of 250
        assert first["angle"] == pytest.approx(second["angle"], rel=1e-4)
        if "class_probabilities" in first:
            shares = [line["class_probabilities"] for line in (first, second)]
            assert shares[0] == pytest.approx(shares[1], rel=1e-3)


def trained_alone(features, method, settings, out):
    return wcdas.train(
        features, method, settings=settings, out=out, device="cpu", report=False
    ).path


@pytest.mark.parametrize("method", ["wcdas", "wcdas-meta"])
def test_two_processes_end_where_one_does(method, features, tmp_path, two_ranks, written):
    out = tmp_path / "two"
    two = two_ranks(features, "--method", method, "--out", out, *given(SETTINGS))
    one = trained_alone(features, method, SETTINGS, tmp_path / "one")
    assert [child.status() for child in two] == [0, 0], two[0].output.read_text()
    assert_close(out, one)
    assert_same_log(out, one, written)


@pytest.mark.parametrize("what", ["sam", "teacher", "experts"])
def test_so_they_do_with_more_in_a_step(what, features, tmp_path, two_ranks, written):
    """Without mixup, whose partners are those of a process."""
    settings = SETTINGS | {"stages.representation.mixup": 0.0}
    if what == "sam":
        settings["stages.representation.sam"] = 0.5
    if what == "teacher":
        settings["teacher"] = trained_alone(features, "softmax", SETTINGS, tmp_path / "teacher")
    method, out = "balpoe" if what == "experts" else "wcdas-prior", tmp_path / "two"
    two = two_ranks(features, "--method", method, "--out", out, *given(settings))
    one = trained_alone(features, method, settings, tmp_path / "one")
    assert [child.status() for child in two] == [0, 0], two[0].output.read_text()
    assert_close(out, one)
    assert_same_log(out, one, written)


@pytest.mark.slow
def test_adapters_are_those_of_one_process(small_vit, tmp_path, two_ranks, written):
    settings = SETTINGS | {"backbone.name": "test_vit", "backbone.weights": small_vit}
    settings |= {"backbone.lora": 4, "input_size": 32, "stages.representation.augment": "none"}
    out = tmp_path / "two"
    two = two_ranks("digits-lt", "--method", "softmax", "--out", out, *given(settings))
    one = trained_alone("digits-lt", "softmax", settings, tmp_path / "one")
    assert [child.status() for child in two] == [0, 0], two[0].output.read_text()
    assert_close(out, one)
    assert_same_log(out, one, written)


def test_two_processes_share_the_features(tmp_path, two_ranks, monkeypatch):
    """Each computes half of what is missing, and both train on all."""
    weights, cache = tmp_path / "weights.safetensors", tmp_path / "cache"
    save_file(create_backbone("resnet8", channels=1).state_dict(), weights)
    settings = {"backbone.name": "resnet8", "backbone.weights": weights, "input_size": 16}
    settings |= {"frozen": "true", "views": 2, "epochs": 2}
    command = ["digits-lt", "--method", "softmax", *given(settings), "--out"]
    told = {"XDG_CACHE_HOME": str(cache)}
    two = two_ranks(*command, tmp_path / "two", environment=told)
    assert [child.status() for child in two] == [0, 0], two[0].output.read_text()
    assert "0 of 1,162 from the store, 1,162 computed" in two[0].output.read_text()
    assert len(list(cache.glob("wcdas/features/*/*"))) >= 6  # a part of each, of three kinds
    again = two_ranks(*command, tmp_path / "again", environment=told)
    assert [child.status() for child in again] == [0, 0], again[0].output.read_text()
    assert "1,162 of 1,162 from the store" in again[0].output.read_text()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    one = trained_alone("digits-lt", "softmax", settings | {"frozen": True}, tmp_path / "one")
    assert_close(tmp_path / "two", one)


def test_stopped_and_resumed_by_two_processes(features, tmp_path, two_ranks, written):
    """Both stop after the same step, although they are asked one after the other."""
    settings = {"epochs": 4, "evaluate_every": 4}
    one = trained_alone(features, "softmax", settings, tmp_path / "one")
    run, begun = tmp_path / "run", [features, "--method", "softmax", *given(settings)]
    two = two_ranks(*begun, "--out", run, happens=AFTER_AN_EPOCH)
    two[0].wait_for(lambda: written.log(run))
    for child in two:
        os.kill(child.process.pid, signal.SIGTERM)
    assert [child.status() for child in two] == [143, 143]
    assert f"go on with: wcdas train --out {run} --resume" in two[0].output.read_text()
    assert not (run / "model.safetensors").exists()
    two = two_ranks("--out", run, "--resume")
    assert [child.status() for child in two] == [0, 0], two[0].output.read_text()
    assert_close(run, one)
    assert_same_log(run, one, written)


def test_both_stop_between_the_batches_of_an_evaluation(features, tmp_path, two_ranks, written):
    """Although one of them is asked alone."""
    settings = {"epochs": 2, "evaluate_every": 1}
    one = trained_alone(features, "softmax", settings, tmp_path / "one")
    run, begun = tmp_path / "run", [features, "--method", "softmax", *given(settings)]
    two = two_ranks(*begun, "--out", run, happens=("measure",))
    two[1].wait_for(lambda: "stays here" in two[1].output.read_text())
    os.kill(two[1].process.pid, signal.SIGTERM)
    assert [child.status() for child in two] == [143, 143]
    assert f"go on with: wcdas train --out {run} --resume" in two[0].output.read_text()
    assert written.log(run) == []  # the epoch was not measured
    assert list((run / "checkpoint").iterdir())
    two = two_ranks("--out", run, "--resume")
    assert [child.status() for child in two] == [0, 0], two[0].output.read_text()
    assert_close(run, one)
    assert_same_log(run, one, written)


def test_the_first_process_chooses_the_folder(features, tmp_path, start, meeting):
    """The other one may be so late that the run has begun."""
    run, settings = tmp_path / "run", given({"epochs": 1})
    command = ["train", features, "--method", "softmax", "--no-report", "--out", run, *settings]
    late = ("late", "wcdas.api.new_folder", str(run / "run.toml"))
    first, second = meeting()
    two = [start(*command, environment=first)]
    two.append(start(*command, environment=second, happens=late))
    assert [child.status() for child in two] == [0, 0], two[1].output.read_text()


def launch(ranks, heard_of):
    """In a process that starts others, as torchrun does, until it is killed."""
    for given in ranks:
        if not os.fork():
            heard_of.send(os.getpid())
            runpy.run_path(str(CHILD), {"given": given}, "__main__")
    signal.pause()


@pytest.fixture
def launcher(tmp_path, meeting):
    """Starts two processes by one that tells them what torchrun does, and a pipe that they hold."""
    started = []

    def run(*command):
        context = multiprocessing.get_context("forkserver")
        heard, heard_of = context.Pipe(duplex=False)
        arguments = ["train", "--no-report", *map(str, command)]
        ranks = [
            (arguments, str(tmp_path / f"rank-{i}"), NEVER, AFTER_AN_EPOCH, environment | LAUNCHED)
            for i, environment in enumerate(meeting())
        ]
        process = context.Process(target=launch, args=(ranks, heard_of))
        process.start()
        heard_of.close()
        started.extend([process.pid, heard.recv(), heard.recv()])
        return process, heard

    yield run
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_the_processes_end_with_the_one_that_started_them(features, tmp_path, launcher, written):
    run = tmp_path / "run"
    process, held = launcher(features, "--method", "softmax", "--out", run, *given({"epochs": 4}))
    while not written.log(run):
        assert process.is_alive()
        time.sleep(0.002)
    process.kill()
    assert held.poll(600), "they hold the pipe"
    with pytest.raises(EOFError):
        held.recv()
    said = [(tmp_path / f"rank-{i}").read_text() for i in (0, 1)]
    assert said[0].endswith(f"\nwcdas: stopped; go on with: wcdas train --out {run} --resume\n")
    assert said[1] == ""
    assert list((run / "checkpoint").iterdir())
    assert len(written.log(run)) == 1


def test_torchrun_that_has_gone_before_they_begin(features, tmp_path, start, told):
    run = tmp_path / "run"
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        first, _ = told(nobody.getsockname()[1])
        child = start(
            "train", features, "--method", "softmax", "--out", run, environment=first | LAUNCHED
        )
        assert child.status() == 143
    assert child.output.read_text() == "wcdas: stopped; start it again with the same command\n"
    assert not run.exists()


def test_a_process_that_waits_for_another_is_stopped(features, tmp_path, start, told):
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first, _ = told(store.port)
    command = ["train", features, "--method", "softmax", "--out", tmp_path / "run"]
    child = start(*command, environment=first | LAUNCHED)
    child.wait_for(lambda: store.check(["wcdas 0"]))
    os.kill(child.process.pid, signal.SIGTERM)
    assert child.status() == 143
    assert child.output.read_text() == "wcdas: stopped; start it again with the same command\n"


def test_one_process_ends_where_the_other_is_killed(features, tmp_path, start, meeting):
    """Although nobody asks it to."""
    run, settings = tmp_path / "run", given({"epochs": 4})
    command = ["train", features, "--method", "softmax", "--no-report", "--out", run, *settings]
    first, second = meeting()
    left = start(*command, environment=first)
    killed = start(*command, environment=second, happens=("kill", 1, 0))
    assert [killed.status(), left.status()] == [-signal.SIGKILL, 143], left.output.read_text()
    said = left.output.read_text()
    assert said.endswith(f"\nwcdas: stopped; go on with: wcdas train --out {run} --resume\n")


@pytest.mark.slow
def test_killed_and_resumed_under_torchrun(features, tmp_path, torchrun, written):
    """SIGKILL to torchrun alone ends both processes, which it can tell nothing."""
    settings = {"epochs": 4, "evaluate_every": 4}
    one = trained_alone(features, "softmax", settings, tmp_path / "one")
    run = tmp_path / "run"
    begun = [features, "--method", "softmax", "--out", run, *given(settings)]
    child = torchrun(*begun, program=HELD)
    while not written.log(run):
        assert child.poll() is None, child.communicate()[0]
        time.sleep(0.01)
    child.kill()
    output = child.communicate(timeout=600)[0]  # which both hold open
    assert f"go on with: wcdas train --out {run} --resume" in output
    child = torchrun("--out", run, "--resume")
    output = child.communicate()[0]
    assert child.returncode == 0, output
    assert_close(run, one)
    assert_same_log(run, one, written)


@pytest.mark.slow
def test_stopped_and_resumed_under_torchrun(features, tmp_path, torchrun, written):
    """SIGTERM to torchrun stops both processes after the same step."""
    settings = {"epochs": 4, "evaluate_every": 4}
    one = trained_alone(features, "softmax", settings, tmp_path / "one")
    run = tmp_path / "run"
    begun = [features, "--method", "softmax", "--out", run, *given(settings)]
    child = torchrun(*begun, program=HELD)
    while not written.log(run):
        assert child.poll() is None, child.communicate()[0]
        time.sleep(0.01)
    child.terminate()
    output = child.communicate()[0]
    assert f"go on with: wcdas train --out {run} --resume" in output
    assert not (run / "model.safetensors").exists()
    child = torchrun("--out", run, "--resume")
    output = child.communicate()[0]
    assert child.returncode == 0, output
    assert_close(run, one)
    assert_same_log(run, one, written)

"""Ctrl-C, SIGTERM and SIGHUP at any moment: one line, the right exit status, the same end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wcdas.interrupt import SIGNALS

QUICK = ["--set", "epochs=2", "batch_size=64", "evaluate_every=1"]
SMALL = ["--set", "epochs=2", "batch_size=8", "backbone.name=resnet8", "backbone.weights="]
AGAIN = "start it again with the same command"
AFTER_AN_EPOCH = ("hold", 1, 1)


@pytest.fixture
def train(features, tmp_path, start):
    """Starts a run on features: train("run"), train("run", "--resume")."""

    def begun(name, *more, **options):
        given = [features, "--method", "softmax", *QUICK] if "--resume" not in more else []
        return start("train", *given, "--out", tmp_path / name, *more, **options)

    return begun


def said_by(child):
    """The one line that a process said about its end."""
    text = child.output.read_text()
    assert "Traceback" not in text, text
    assert "ignored" not in text, text
    lines = [line for line in text.splitlines() if line.startswith("wcdas: ")]
    assert len(lines) == 1, text
    (line,) = lines
    assert text.endswith(f"{line}\n")
    return line.removeprefix("wcdas: stopped; ")


def stop(child, number=signal.SIGTERM):
    """What a process says when it and all that it started get a signal."""
    os.killpg(child.process.pid, number)
    assert child.status() == 128 + number, child.output.read_text()
    return said_by(child)


def stopped_in(child, number=signal.SIGTERM):
    child.wait_for(lambda: "stays here" in child.output.read_text())
    return stop(child, number)


@pytest.mark.parametrize("number", SIGNALS)
def test_before_training_nothing_is_left(number, train, tmp_path):
    for function in ("wcdas.api.open_data", "wcdas.run.loop.set_values"):
        assert stopped_in(train("run", happens=("stay", function)), number) == AGAIN
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "function",
    [
        "wcdas.run.loop.predict",
        pytest.param("wcdas.run.loop.predictions", marks=pytest.mark.slow),
        pytest.param("wcdas.run.finish.fit_temperature", marks=pytest.mark.slow),
        pytest.param("wcdas.run.finish.metrics_of", marks=pytest.mark.slow),
        "wcdas.run.finish.save_model",
    ],
)
def test_what_takes_long_is_stopped_at_once(function, train, tmp_path, written):
    run = tmp_path / "run"
    whole = train("whole", "--no-report")
    said = stopped_in(train("run", happens=("stay", function)), signal.SIGHUP)
    assert said == f"go on with: wcdas train --out {run} --resume"
    assert list((run / "checkpoint").iterdir())
    assert train("run", "--resume", "--no-report").status() == 0
    assert whole.status() == 0
    written.assert_same(run, tmp_path / "whole")


def test_a_run_without_its_report_is_whole(train, tmp_path):
    said = stopped_in(train("run", happens=("stay", "wcdas.api.report_on")), signal.SIGINT)
    assert said == f"the run is whole, its report is written with: wcdas report {tmp_path / 'run'}"
    assert (tmp_path / "run" / "metrics.json").exists()


def test_what_was_asked_in_the_last_step(tmp_path, start, written):
    """The epoch is over, and nothing of it is done twice."""
    begun = ["train", "--method", "softmax", "--no-report", *SMALL, "batch_size=128", "--out"]
    whole = start(*begun, tmp_path / "whole")
    run = tmp_path / "run"
    child = start(*begun, run, happens=("hold", 1, 2))
    child.wait_for(lambda: written.log(run))
    stop(child)
    assert len(written.log(run)) == 1
    assert start("train", "--out", run, "--resume", "--no-report").status() == 0
    assert whole.status() == 0
    written.assert_same(run, tmp_path / "whole")


@pytest.fixture
def on_pictures(pictures, tmp_path, start):
    """Starts a run whose images a worker process decodes."""
    folder = pictures(tmp_path / "pictures", china=12, flower=8)

    def begun(name, *more, **options):
        given = [folder, "--method", "softmax", *SMALL] if "--resume" not in more else []
        options_ = ("--workers", 1, "--no-report", "--out", tmp_path / name)
        return start("train", *given, *more, *options_, **options)

    return begun


def test_workers_leave_signals_to_the_main_process(on_pictures, tmp_path, written):
    run = tmp_path / "run"
    whole = on_pictures("whole")
    child = on_pictures("run", happens=AFTER_AN_EPOCH)
    child.wait_for(lambda: written.log(run))
    assert stop(child) == f"go on with: wcdas train --out {run} --resume"
    assert on_pictures("run", "--resume").status() == 0
    assert whole.status() == 0
    written.assert_same(run, tmp_path / "whole")


def in_group(group):
    """The processes of a group that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = status.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # ended meanwhile
            continue
        if int(its_group) == group and state != "Z":
            found.append(status)
    return found


@pytest.mark.slow
def test_workers_do_not_outlive_the_main_process(on_pictures, tmp_path, written):
    child = on_pictures("run", happens=AFTER_AN_EPOCH)
    child.wait_for(lambda: written.log(tmp_path / "run"))
    group = child.process.pid
    assert len(in_group(group)) > 1
    child.process.kill()
    child.status()
    while in_group(group):
        time.sleep(0.01)


def test_a_sweep(features, tmp_path, start, written):
    out = tmp_path / "sweep"
    begun = ["sweep", features, "--methods", "softmax", "--seeds", 2, "--no-report", *QUICK]
    child = start(*begun, "--out", out, happens=("stay", "wcdas.run.finish.save_model"))
    child.wait_for(lambda: (out / "softmax-s0" / "checkpoint").exists())
    assert stop(child) == f"go on with: wcdas sweep --out {out} --resume"
    again = start("sweep", "--out", out, "--resume", "--no-report")
    whole = start(*begun, "--out", tmp_path / "whole")
    assert [again.status(), whole.status()] == [0, 0]
    for name in ("softmax-s0", "softmax-s1"):
        written.assert_same(out / name, tmp_path / "whole" / name)


@pytest.mark.slow
def test_a_sweep_in_processes(features, tmp_path, start):
    """Its runs would take hours."""
    out, endless = tmp_path / "sweep", ["--set", "epochs=1000000", "batch_size=64"]
    begun = ["sweep", features, "--methods", "softmax", "--seeds", 2, "--no-report", *endless]
    child = start(*begun, "--out", out, "--parallel", 2)
    logs = [out / f"softmax-s{seed}" / "log.jsonl" for seed in (0, 1)]
    child.wait_for(lambda: all(log.exists() for log in logs))
    assert stop(child) == f"go on with: wcdas sweep --out {out} --resume"
    for log in logs:
        assert any((log.parent / "checkpoint").iterdir())


def test_from_the_first_moment(tmp_path):
    """Stopped while the command line is imported, from which everything else follows."""
    (tmp_path / "typer.py").write_text("print('here', flush=True)\nwhile True: pass\n")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    with subprocess.Popen(
        [sys.executable, "-m", "wcdas", "train"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "here\n"
        (tmp_path / "typer.py").unlink()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert (process.returncode, said) == (143, f"wcdas: stopped; {AGAIN}\n")


def test_the_signal_counts_that_another_package_makes_a_ctrl_c_of(command, monkeypatch):
    def listing(*_):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise KeyboardInterrupt

    monkeypatch.setattr("wcdas.listing.listing", listing)
    assert command("list", "methods") == (143, "", f"wcdas: stopped; {AGAIN}\n")


@pytest.mark.parametrize("name", [".lock", ".run.toml.partial", ".sweep.toml.partial"])
def test_what_a_kill_left_behind_is_in_no_ones_way(name, train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).touch()
    assert train("run", "--no-report").status() == 0

"""What does a run of a sweep on a machine of a Ray cluster, in this process: see `test_ray.py`."""

import io
import os
import shutil
import signal
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest
from rich.console import Console
from tests.conftest import FORKED

import wcdas
from wcdas.errors import InterruptedRunError, WorkError
from wcdas.files import holder, locked
from wcdas.interrupt import PARENT
from wcdas.run.folder import RunFolder
from wcdas.sweeps.execute import train_command
from wcdas.sweeps.folder import SweepFolder, again
from wcdas.sweeps.plan import SweepRun
from wcdas.sweeps.progress import SweepProgress

pytest.importorskip("ray", reason="ray is not installed")

from wcdas.sweeps import runner
from wcdas.sweeps.cluster import Machine
from wcdas.sweeps.runner import Runner, share_out


def machines(kind, *cpus_and_gpus):
    found = [Machine("", "", cpus, gpus) for cpus, gpus in cpus_and_gpus]
    least, gpus = min(m.cpus for m in found), sum(m.gpus for m in found)
    return SimpleNamespace(kind=kind, machines=found, cpus=least, gpus=gpus)


@pytest.mark.parametrize(
    ("there", "runs", "most", "takes", "cpus", "at_a_time"),
    [
        ([(16, 2)], 6, 1, 1.0, 8, 2),
        ([(16, 2)], 6, 8, 0.3333, 2, 6),  # no more on a GPU than there must be
        ([(16, 2)], 100, 8, 0.125, 1, 16),
        ([(16, 2), (64, 8)], 10, 8, 1.0, 8, 10),
        ([(4, 4)], 100, 3, 0.3333, 1, 12),
    ],
)
def test_a_gpu_is_shared(there, runs, most, takes, cpus, at_a_time):
    room = share_out(machines("cuda", *there), runs, most, most, 1, [])
    assert room.takes == {"num_cpus": 0, "num_gpus": takes}
    assert (room.cpus, room.runs) == (cpus, at_a_time)


@pytest.mark.parametrize(
    ("there", "parallel", "threads", "cpus", "at_a_time"),
    [
        ([(8, 0)], None, 1, 1, 8),
        ([(8, 0), (4, 0)], None, 4, 4, 3),
        ([(8, 0), (4, 0)], 2, 2, 2, 6),
        ([(8, 0)], 2, 1, 4, 2),
        ([(2, 0)], None, 16, 2, 1),  # a sweep that was begun on a larger machine
        ([(2, 0)], 5, 1, 1, 2),
    ],
)
def test_cores_are_shared(there, parallel, threads, cpus, at_a_time):
    room = share_out(machines("cpu", *there), 100, parallel, parallel or 1, threads, [])
    assert room.takes == {"num_cpus": cpus}
    assert (room.cpus, room.runs) == (cpus, at_a_time)


@pytest.fixture
def own_runner(monkeypatch):
    """An actor's object in this process."""
    monkeypatch.setenv(PARENT, "to be restored")
    return Runner()


def test_a_run_waits_for_who_is_at_work_on_it(own_runner, tmp_path, monkeypatch):
    """The process of a lost machine, say, which is still writing its last checkpoint."""
    looks = []

    def seen(folder):
        assert not (tmp_path / "begun").exists()
        looks.append(holder(folder))
        if len(looks) == 3:
            other.__exit__(None, None, None)
        return looks[-1]

    monkeypatch.setattr(runner, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(runner, "holder", seen)
    other = locked(tmp_path, "wait")
    other.__enter__()
    program = f"open({str(tmp_path / 'begun')!r}, 'w')"
    own_runner.do(lambda folder: [sys.executable, "-c", program], tmp_path, 1)
    assert [bool(look) for look in looks] == [True, True, True, False]
    assert (tmp_path / "begun").exists()


def test_a_stop_reaches_the_process_of_a_run(own_runner, tmp_path):
    program = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(143))\n"
    program += "while True: time.sleep(0.01)"
    own_runner.stop(signal.SIGHUP, at_once=False)
    with pytest.raises(InterruptedRunError) as stopped:
        own_runner.do(lambda folder: [sys.executable, "-c", program], tmp_path, 1)
    assert stopped.value.number == signal.SIGHUP


@pytest.fixture
def whole(features, tmp_path):
    """A finished run."""
    options = {
        "settings": {"epochs": 2, "batch_size": 64},
        "device": "cpu",
        "report": False,
        "callbacks": [],
    }
    return wcdas.train(features, "softmax", out=tmp_path / "whole", **options).path


@pytest.fixture
def begun(whole, tmp_path):
    """One like it that a sweep has just written down."""
    run = RunFolder(tmp_path / "run")
    run.claim()
    shutil.copy(whole / "run.toml", run.path)
    return run


def test_a_run_that_nobody_lets_go_of_fails(own_runner, begun, monkeypatch):
    monkeypatch.setattr(runner, "WAIT_SECONDS", 0)
    command = partial(train_command, "cpu", 0, [], False)
    with (
        locked(begun.path, "wait"),
        pytest.raises(WorkError, match=rf"{begun.path} is in use by process {os.getpid()} on"),
    ):
        own_runner.do(command, begun.path, 1)


def do_a_run(folder, path):
    os.environ["PYTHONPATH"] = path
    Runner().do(partial(train_command, "cpu", 0, [], False), folder, 1)


def test_a_run_ends_with_the_worker_that_started_it(whole, begun, holding):
    """At a checkpoint, from which it goes on to the same end."""
    worker = FORKED.Process(target=do_a_run, args=(begun.path, holding))
    worker.start()
    wait_for(lambda: begun.epochs_logged)
    assert holder(begun.path)
    worker.kill()
    wait_for(lambda: not holder(begun.path))
    assert any(begun.checkpoints.iterdir())
    assert not begun.is_finished
    wcdas.train(out=begun.path, resume=True, device="cpu", report=False, callbacks=[])
    for name in ("metrics.json", "model.safetensors"):
        assert (begun.path / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.parametrize("late", [True, False])
def test_files_of_another_machine_may_be_seen_late(whole, begun, monkeypatch, late):
    def show(seconds):
        shutil.copytree(whole, begun.path, dirs_exist_ok=True)

    if late:
        slow = SimpleNamespace(monotonic=time.monotonic, sleep=show)
        monkeypatch.setattr(runner, "time", slow)
        assert not begun.is_finished
        runner._wait_until_seen(begun)
        assert begun.is_finished
    else:
        monkeypatch.setattr(runner, "SEEN_SECONDS", 0)
        with pytest.raises(WorkError, match=f"finished, but its files are not in {begun.path}"):
            runner._wait_until_seen(begun)


def test_a_run_that_never_had_a_machine_is_told(tmp_path):
    run, screen = SweepRun("softmax", 0), io.StringIO()
    progress = SweepProgress(Console(file=screen, width=200), SweepFolder(tmp_path), {run: 2})
    progress.ended(run, "gpu-2 does not see it")
    assert screen.getvalue() == "1/1 softmax-s0 failed: gpu-2 does not see it\n"


def test_the_command_that_goes_on_names_the_cluster(tmp_path):
    assert again(tmp_path, "local").endswith(f"wcdas sweep --out {tmp_path} --resume --ray local")


def wait_for(condition):
    end = time.monotonic() + 600  # no test waits for ever
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

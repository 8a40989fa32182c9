"""Runs side by side, in threads and in processes of their own; some fail, some are stopped."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import wcdas
from wcdas.errors import InputError, InterruptedRunError, WorkError
from wcdas.interrupt import Interrupt
from wcdas.methods import METHODS
from wcdas.sweeps import execute
from wcdas.sweeps.execute import (
    LostClusterError,
    in_process,
    on_own_stream,
    one_by_one,
    runs_at_a_time,
    side_by_side,
    train_command,
)
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.plan import SweepRun

RUNS = [SweepRun("softmax", seed) for seed in range(4)]


@pytest.mark.parametrize("at_a_time", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_every_run_ends_and_no_more_than_asked_for_are_at_work(at_a_time):
    at_work, most = set(), []
    lock, first = threading.Lock(), threading.Barrier(at_a_time)

    def train(run, interrupt):
        with lock:
            at_work.add(run)
            most.append(len(at_work))
        if run in RUNS[:at_a_time]:
            first.wait(600)
        with lock:
            at_work.remove(run)
        if run.seed == 2:
            raise WorkError("the loss became NaN")
        if run.seed == 3:
            raise ZeroDivisionError("a fault")

    ended = one_by_one(RUNS, train) if at_a_time == 1 else side_by_side(RUNS, at_a_time, train)
    reasons = {2: "the loss became NaN", 3: "ZeroDivisionError: a fault"}
    assert dict(ended) == {run: reasons.get(run.seed) for run in RUNS}
    assert max(most) == at_a_time


@pytest.mark.parametrize(
    ("device", "asked", "done"),
    [("cuda", 12, 8), ("cuda", 8, 8), ("cuda", 3, 3), ("cuda", 1, 1), ("cpu", 12, 12)],
)
def test_threads_on_a_gpu_are_no_more_than_there_are_streams_for(device, asked, done, monkeypatch):
    monkeypatch.setattr(execute, "choose_device", torch.device)
    digits = wcdas.open_dataset("digits-lt")
    assert runs_at_a_time(asked, 20, device, digits) == done


def test_a_stop_reaches_all_threads():
    began, started = threading.Barrier(3), []

    def train(run, interrupt):
        started.append(run)
        began.wait(600)
        while not interrupt.requested:
            threading.Event().wait(0.01)
        raise InterruptedRunError("stopped")

    def stop():
        began.wait(600)
        os.kill(os.getpid(), signal.SIGINT)

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(InterruptedRunError):
        list(side_by_side(RUNS, 2, train))
    stopper.join()
    assert set(started) == set(RUNS[:2])


def test_two_runs_in_threads_are_those_of_one_after_the_other(features, tmp_path):
    options = {"settings": {"epochs": 1, "batch_size": 64}, "device": "cpu", "report": False}

    def train(kind):
        def trained(run, interrupt):
            out = tmp_path / f"{kind}-{run.seed}"
            wcdas.train(features, "wcdas", seed=run.seed, out=out, **options)

        return trained

    beside = side_by_side(RUNS[:2], 2, on_own_stream(train("beside")))
    assert set(dict(beside).values()) == {None}
    assert list(one_by_one(RUNS[:2], train("alone"))) == [(run, None) for run in RUNS[:2]]
    for run in RUNS[:2]:
        models = [tmp_path / f"{kind}-{run.seed}/model.safetensors" for kind in ("beside", "alone")]
        assert models[0].read_bytes() == models[1].read_bytes()


@pytest.fixture
def work(tmp_path):
    """Runs that are short Python programs, two at a time."""

    def started(program):
        with SweepFolder(tmp_path).claimed() as claim:

            def do(run, interrupt):
                code = f"seed, here = {run.seed}, {str(tmp_path)!r}\n{program}"
                in_process([sys.executable, "-c", code], 3, claim, interrupt)

            return list(side_by_side(RUNS, 2, do))

    return started


def test_reasons(work):
    ended = work(
        "import os, sys\n"
        "if seed == 1: sys.exit('wcdas: the disk is full')\n"
        "if seed == 2: os.kill(os.getpid(), 9)\n"
        "if seed == 3: {}['x']\n"
    )
    assert dict(ended) == {
        RUNS[0]: None,
        RUNS[1]: "the disk is full",
        RUNS[2]: "ended by signal 9; often too little memory",
        RUNS[3]: "KeyError: 'x'",
    }


def test_two_at_a_time_share_the_threads(work, tmp_path):
    work(
        "import os, pathlib, time\n"
        "place, here = pathlib.Path(here, f'at-work-{seed}'), pathlib.Path(here)\n"
        "place.touch()\n"
        "(here / f'came-{seed}').touch()\n"
        "while not (here / f'came-{seed ^ 1}').exists(): time.sleep(0.01)  # 0 and 1, 2 and 3\n"
        "others = len(list(here.glob('at-work-*')))\n"
        "threads = os.environ['OMP_NUM_THREADS']\n"
        "(here / f'seen-{seed}').write_text(f'{others} {threads}')\n"
        "place.unlink()\n"
    )
    seen = [(tmp_path / f"seen-{run.seed}").read_text().split() for run in RUNS]
    assert max(int(others) for others, _ in seen) == 2
    assert {threads for _, threads in seen} == {"3"}


ENDS_WHEN_ASKED = (
    "import pathlib, signal, sys, time\n"
    "def stop(*_):\n"
    "    pathlib.Path(here, f'stopped-{seed}').touch(); sys.exit(130)\n"
    "signal.signal(signal.SIGTERM, stop)\n"
    "pathlib.Path(here, f'ready-{seed}').touch()\n"
    "while True: time.sleep(0.01)\n"
)


def test_a_child_that_outlives_its_parent_keeps_the_folder(tmp_path):
    folder = SweepFolder(tmp_path)
    program = f"open({str(tmp_path / 'begun')!r}, 'w'); import time; time.sleep(3600)"
    interrupt = Interrupt()
    with folder.claimed() as claim:
        child = [sys.executable, "-c", program], 1, claim, interrupt
        pool = ThreadPoolExecutor(1)
        ended = pool.submit(in_process, *child)
        while not (tmp_path / "begun").exists():
            time.sleep(0.005)
    with (
        pytest.raises(InputError, match=r"in use by process .*; wait"),
        folder.claimed(),
    ):
        pass
    interrupt.requested = True
    with pytest.raises(InterruptedRunError):
        ended.result()
    with folder.claimed():
        pass


def test_ctrl_c_stops_all_and_starts_no_more(work, tmp_path, stop_when):
    stop_when(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    with pytest.raises(InterruptedRunError):
        work(ENDS_WHEN_ASKED)
    assert sorted(file.name for file in tmp_path.glob("stopped-*")) == ["stopped-0", "stopped-1"]
    assert len(list(tmp_path.glob("ready-*"))) == 2


def test_a_second_ctrl_c_ends_at_once(work, tmp_path, stop_when):
    stop_when(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    stop_when(lambda: len(list(tmp_path.glob("asked-*"))) == 2)
    with pytest.raises(KeyboardInterrupt):
        work(ENDS_WHEN_ASKED.replace("stopped-", "asked-").replace("sys.exit(130)", "pass"))
    with SweepFolder(tmp_path).claimed():
        pass


def test_an_error_of_the_parent_stops_all(tmp_path):
    def do(run, interrupt):
        program = "" if run.seed == 2 else ENDS_WHEN_ASKED
        program = f"seed, here = {run.seed}, {str(tmp_path)!r}\n{program}"
        in_process([sys.executable, "-c", program], 1, claim, interrupt)

    with SweepFolder(tmp_path).claimed() as claim:
        ended = side_by_side([RUNS[0], RUNS[2], RUNS[1]], 2, do)
        with closing(ended):
            assert next(ended) == (RUNS[2], None)
            while not (tmp_path / "ready-0").exists():
                time.sleep(0.005)
    assert (tmp_path / "stopped-0").exists()


def test_a_cluster_that_is_lost_stops_all():
    """No run is to blame for it, and none that has not begun does."""
    began, done = threading.Barrier(2), []

    def do(run, interrupt):
        began.wait(600)
        if run.seed:
            raise LostClusterError("it does not answer")
        while not interrupt.requested:
            time.sleep(0.005)
        done.append(run)
        raise InterruptedRunError("stopped")

    with pytest.raises(LostClusterError, match="it does not answer"):
        list(side_by_side(RUNS[:2], 2, do))
    assert done == RUNS[:1]


def test_a_method_that_a_script_registers_is_refused(sweep, tmp_path, monkeypatch):
    for name in ("own", "softmax"):  # a new name, and another method under a known one
        with monkeypatch.context() as patched:
            patched.setitem(METHODS, name, replace(METHODS["wcdas"], summary="mine"))
            with pytest.raises(InputError, match=f"'{name}' is registered by a .* use parallel=1"):
                sweep("wcdas", name, parallel=2, out=tmp_path / "sweep")
            with pytest.raises(InputError, match="other machines do not run; leave --ray out, or"):
                sweep("wcdas", name, ray="local", out=tmp_path / "sweep")
            assert not (tmp_path / "sweep").exists()


def held(*given):
    """The command of a run that waits, after its first epoch, until it is asked to stop."""
    python, _, _, *arguments = train_command(*given)
    return [python, Path(__file__).parents[1] / "child.py", "hold", "1", "0", *arguments]


@pytest.mark.slow
def test_stopped_and_resumed_side_by_side(tmp_path, stop_when, monkeypatch):
    """The end is that of runs one after the other with as many threads."""
    out, names = tmp_path / "side by side", ["softmax-s0", "wcdas-s0"]
    options = {"methods": "softmax,wcdas", "seeds": 1, "device": "cpu", "report": False}
    options["settings"] = {"epochs": 2, "backbone.name": "resnet8"}
    log = out / "wcdas-s0" / "log.jsonl"
    stop_when(lambda: log.exists() and log.read_bytes())
    monkeypatch.setattr("wcdas.api.train_command", held)
    with pytest.raises(InterruptedRunError) as stopped:
        wcdas.sweep(out=out, parallel=2, **options)
    monkeypatch.undo()
    assert str(stopped.value) == f"stopped; go on with: wcdas sweep --out '{out}' --resume"
    assert list((out / "wcdas-s0" / "checkpoint").iterdir())
    assert not (out / "wcdas-s0" / "metrics.json").exists()

    again = wcdas.sweep(out=out, resume=True, parallel=2, device="cpu", report=False)
    whole = wcdas.sweep(out=tmp_path / "one by one", **options)
    for name in names:
        for file in ("run.toml", "metrics.json", "model.safetensors"):
            one, other = (folder / name / file for folder in (out, whole.path))
            assert one.read_bytes() == other.read_bytes(), file
    assert again.results == whole.results
    assert again.table() == whole.table()

"""Runs in threads: real ones on feature vectors, some of which fail or are stopped."""

import threading

import pytest

import wcdas
from wcdas.errors import InterruptedRunError, WorkError
from wcdas.sweeps.plan import SweepRun
from wcdas.sweeps.threads import in_threads

RUNS = [SweepRun("softmax", seed) for seed in range(5)]


def test_every_run_ends_and_no_more_than_asked_for_are_at_work():
    at_work, most = set(), []
    lock, first_two = threading.Lock(), threading.Barrier(2)

    def train(run, interrupt):
        with lock:
            at_work.add(run)
            most.append(len(at_work))
        if run in RUNS[:2]:
            first_two.wait(600)
        with lock:
            at_work.remove(run)
        if run.seed == 2:
            raise WorkError("the loss became NaN")
        if run.seed == 3:
            raise ZeroDivisionError("a fault")

    ended = dict(in_threads(RUNS, 2, train))
    assert max(most) == 2
    assert ended == {
        run: {2: "the loss became NaN", 3: "ZeroDivisionError: a fault"}.get(run.seed)
        for run in RUNS
    }


def test_a_stop_reaches_all_runs():
    began = threading.Barrier(3)

    def train(run, interrupt):
        began.wait(600)
        while not interrupt.requested:
            threading.Event().wait(0.01)
        raise InterruptedRunError("stopped")

    work = in_threads(RUNS, 2, train)
    stopper = threading.Thread(target=lambda: (began.wait(600), _interrupt()))
    stopper.start()
    with pytest.raises(InterruptedRunError):
        list(work)
    stopper.join()


def _interrupt():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGINT)


def test_two_runs_side_by_side_are_those_of_one_after_the_other(features, tmp_path):
    options = {"settings": {"epochs": 1, "batch_size": 64}, "device": "cpu", "report": False}

    def train(run, interrupt):
        out = tmp_path / f"threads-{run.seed}"
        wcdas.train(features, "wcdas", seed=run.seed, out=out, **options)

    assert set(dict(in_threads(RUNS[:2], 2, train)).values()) == {None}
    for run in RUNS[:2]:
        out = tmp_path / f"alone-{run.seed}"
        alone = wcdas.train(features, "wcdas", seed=run.seed, out=out, **options)
        beside = tmp_path / f"threads-{run.seed}" / "model.safetensors"
        assert beside.read_bytes() == (alone.path / "model.safetensors").read_bytes()

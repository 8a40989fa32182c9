"""Runs side by side, each in a process of its own."""

import signal
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import wcdas
from wcdas.errors import InputError, InterruptedRunError
from wcdas.methods import METHODS
from wcdas.sweeps.children import Child, side_by_side, train_command
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.plan import SweepRun

RUNS = [SweepRun("softmax", seed) for seed in range(4)]


@pytest.fixture
def work(tmp_path):
    """Runs that are short Python programs, two at a time."""

    def started(program):
        def command(run):
            return [sys.executable, "-c", f"seed, here = {run.seed}, {str(tmp_path)!r}\n{program}"]

        with SweepFolder(tmp_path).claimed() as claim:
            return list(side_by_side(RUNS, 2, command, 3, claim))

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
    with folder.claimed() as claim:
        child = Child([sys.executable, "-c", "import time; time.sleep(3600)"], 1, claim)
    with pytest.raises(InputError, match="are still at work; wait for them"), folder.claimed():
        pass
    child.stop(signal.SIGTERM)
    assert child.reason() == "ended by signal 15"
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
    def command(run):
        if run.seed == 2:
            program = "pass"
        else:
            program = f"seed, here = {run.seed}, {str(tmp_path)!r}\n{ENDS_WHEN_ASKED}"
        return [sys.executable, "-c", program]

    with SweepFolder(tmp_path).claimed() as claim:
        ended = side_by_side([RUNS[0], RUNS[2], RUNS[1]], 2, command, 1, claim)
        with closing(ended):
            assert next(ended) == (RUNS[2], None)
            while not (tmp_path / "ready-0").exists():
                time.sleep(0.005)
    assert (tmp_path / "stopped-0").exists()


def test_a_method_that_a_script_registers_is_refused(sweep, tmp_path, monkeypatch):
    for name in ("own", "softmax"):  # a new name, and another method under a known one
        with monkeypatch.context() as patched:
            patched.setitem(METHODS, name, replace(METHODS["wcdas"], summary="mine"))
            with pytest.raises(InputError, match=f"'{name}' is registered by a .* use parallel=1"):
                sweep("wcdas", name, parallel=2, out=tmp_path / "sweep")
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
    monkeypatch.setattr("wcdas.sweeps.run.train_command", held)
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

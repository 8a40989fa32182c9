"""Whole sweeps: a table of real runs, added to, resumed, and with runs that fail."""

import csv
import io
import json
import re
import shutil
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import wcdas
from wcdas.errors import InputError, WorkError
from wcdas.methods import METHODS, Method
from wcdas.run.folder import RunFolder

QUICK = {"epochs": 1, "batch_size": 64}


@pytest.fixture(scope="module")
def finished(sweep, tmp_path_factory):
    """Two methods × two seeds."""
    return sweep("softmax", "wcdas", seeds=2, out=tmp_path_factory.mktemp("sweeps") / "done")


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished sweep, to be changed."""
    return Path(shutil.copytree(finished.path, tmp_path / "copy"))


def metrics(folder, method):
    return [
        json.loads(file.read_text()) for file in sorted(folder.glob(f"{method}-s*/metrics.json"))
    ]


def columns(found):
    """Mean and spread of a table's row, as NumPy computes them from the runs' own files."""
    keys = ("many", "medium", "few", found[0]["headline"])
    rows = 100 * np.array([[m[key] for key in keys] for m in found], dtype=float)
    return rows.mean(axis=0), rows.std(axis=0, ddof=1)


def cell(mean, std):
    return "–" if np.isnan(mean) else f"{mean:.1f} ± {std:.1f}"


def test_a_run_that_does_not_learn_is_named_below_the_table(sweep, tmp_path):
    hopeless = {"epochs": 6, "batch_size": 6, "lr": 1e-6}
    with pytest.warns(RuntimeWarning, match="nothing is learnt"):
        done = sweep("softmax", seeds=1, settings=hopeless, out=tmp_path / "sweep")
    (text,) = done.results["runs"]["softmax-s0"]["warnings"]
    assert done.table().splitlines()[-1] == f"softmax-s0, warning: {text}"


@pytest.mark.parametrize("method", ["softmax", "wcdas"])
def test_the_table_is_that_of_the_runs(finished, method):
    found = metrics(finished.path, method)
    assert len(found) == 2
    assert found[0] != found[1]
    mean, std = columns(found)
    assert np.isnan(mean).tolist() == [True, False, False, False]  # no class has over 100 images
    header, *lines = finished.table().splitlines()[1:]
    assert header.endswith("  all (balanced)  to the best")
    line = next(line for line in lines if line.startswith(f"{method} "))
    cells = re.split(" {2,}", line)
    assert cells[:-1] == [method, "2", *map(cell, mean, std)]
    assert cells[-1] == "best" or re.fullmatch(r"[−+]\d+\.\d ± \d+\.\d", cells[-1])
    assert " to the best\n" in f"{header}\n"
    assert lines[-1].startswith("not told apart from ")
    with (finished.path / "table.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["method"] == method)
    for part, numbers in (("mean", mean), ("std", std)):
        written = [float(row[f"{c}_{part}"] or "nan") for c in ("many", "medium", "few", "all")]
        assert written == pytest.approx(numbers, abs=1e-4, nan_ok=True)
    runs = [finished.results["runs"][f"{method}-s{seed}"]["metrics"] for seed in (0, 1)]
    assert [run["top1"] for run in runs] == [m["top1"] for m in found]


def test_every_run_is_what_train_makes_of_it(finished, features, tmp_path):
    for method, seed in (("softmax", 0), ("wcdas", 1)):
        run = finished.path / f"{method}-s{seed}"
        alone = wcdas.train(
            features,
            method,
            settings=QUICK,
            seed=seed,
            out=tmp_path / run.name,
            device="cpu",
            report=False,
        ).path
        for name in ("run.toml", "metrics.json", "model.safetensors"):
            assert (run / name).read_bytes() == (alone / name).read_bytes(), name
        assert {p.name for p in run.iterdir()} == {p.name for p in alone.iterdir()}


def test_every_run_is_followed_by_its_own_loggers(sweep, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    done = sweep("softmax", "wcdas", seeds=1, out=tmp_path / "s", callbacks=["mlflow"])
    client = mlflow.MlflowClient()
    (experiment,) = [e for e in client.search_experiments() if e.name == "wcdas"]
    found = {r.info.run_name: r.data for r in client.search_runs([experiment.experiment_id])}
    assert set(found) == {"softmax-s0", "wcdas-s0"}
    for name, data in found.items():
        stored = json.loads((done.path / name / "metrics.json").read_text())
        assert data.metrics["final/top1"] == pytest.approx(stored["top1"])
        assert not (done.path / name / "tensorboard").exists()


@pytest.mark.slow
def test_loggers_of_runs_in_processes_of_their_own(sweep, tmp_path):
    done = sweep("softmax", seeds=2, parallel=2, out=tmp_path / "board")
    assert len(list(done.path.glob("*/tensorboard"))) == 2
    assert done.results["methods"]["softmax"]["finished"] == 2


@pytest.mark.slow
def test_no_loggers_of_runs_in_processes_of_their_own(sweep, tmp_path):
    done = sweep("softmax", seeds=2, parallel=2, out=tmp_path / "none", callbacks=[])
    assert not list(done.path.glob("*/tensorboard"))


def test_runs_do_not_share_a_callback(sweep, tmp_path):
    with pytest.raises(InputError, match="a sweep takes names, such as 'tensorboard', since every"):
        sweep("softmax", out=tmp_path / "s", callbacks=[wcdas.Callback()])
    assert not (tmp_path / "s").exists()


def test_what_was_asked_is_written_down(finished, features):
    asked = tomllib.loads((finished.path / "sweep.toml").read_text())
    info = asked.pop("info")
    assert asked == {
        "methods": ["softmax", "wcdas"],
        "seeds": 2,
        "skip_bad": False,
        "data": {"source": str(features)},
        "settings": QUICK,
    }
    assert info["versions"]["wcdas"] == wcdas.__version__
    run = tomllib.loads((finished.path / "wcdas-s1" / "run.toml").read_text())
    assert info["fingerprint"] == run["info"]["fingerprint"]


def test_a_finished_sweep_resumes_to_its_table(finished, times, command):
    before = times(finished.path)
    done = command("sweep", "--out", finished.path, "--resume", "--device", "cpu")
    assert done == (0, f"\n{finished.table()}\n\n{finished.path}\n", "")
    assert times(finished.path) == before


def test_methods_and_seeds_are_added_and_nothing_is_repeated(copy, finished, sweep, times):
    before = {file: t for file, t in times(copy).items() if file.parent != copy}
    more = sweep("angular-softmax", seeds=3, out=copy, resume=True)
    after = times(copy)
    assert before.items() <= after.items()
    rows = [line.split()[:2] for line in more.table().splitlines()[2:5]]
    assert rows == [["softmax", "3"], ["wcdas", "3"], ["angular-softmax", "3"]]
    new = {file.parent.name for file in after if file.name == "run.toml" and file not in before}
    assert new == {"softmax-s2", "wcdas-s2", *(f"angular-softmax-s{seed}" for seed in range(3))}
    first = more.results["runs"]["softmax-s0"]
    assert first == finished.results["runs"]["softmax-s0"]
    for method in ("softmax", "angular-softmax"):
        stored = more.results["methods"][method]["few"]
        few = [m["few"] for m in metrics(copy, method)]
        assert stored["std"] == pytest.approx(np.std(few, ddof=1))


def test_other_changes_are_refused(copy, sweep, times):
    before = times(copy)
    with pytest.raises(InputError, match=r"started otherwise \(epochs: 1 → 2\)"):
        sweep(settings={"epochs": 2}, out=copy, resume=True)
    # The same settings on other code, or a run that was put there by hand.
    run = copy / "softmax-s1" / "run.toml"
    run.write_text(run.read_text().replace("batch_size = 64", "batch_size = 32"))
    before[run] = run.stat().st_mtime_ns
    with pytest.raises(InputError, match=r"softmax-s1 was .*representation.batch_size: 32 → 64"):
        sweep(seeds=3, out=copy, resume=True)
    assert times(copy) == before


def test_changed_data_is_refused(sweep, features, tmp_path):
    own = tmp_path / "pixels.npy"
    shutil.copy(features, own)
    labels = np.load(features.with_name("pixels_labels.npy"))
    np.save(tmp_path / "pixels_labels.npy", labels)
    done = sweep("softmax", seeds=1, data=own, out=tmp_path / "sweep")
    labels[0] = 1
    np.save(tmp_path / "pixels_labels.npy", labels)
    with pytest.raises(InputError, match="data has changed since"):
        sweep(seeds=2, data=own, out=done.path, resume=True)


def test_a_run_that_fails_fails_alone(sweep, tmp_path, times, command, features):
    """Only wcdas has a second stage, and its rate is far too high."""
    out = tmp_path / "sweep"
    settings = [f"{key}={value}" for key, value in QUICK.items()]
    arguments = ["--methods", "wcdas,softmax", "--seeds", "2", "--out", out, "--device", "cpu"]
    arguments += ["--no-report", "--set", *settings, "stages.classifier.lr=1e30"]
    status, said, error = command("sweep", features, *arguments)
    assert status == 1
    assert error == (
        "wcdas: 2 of 4 runs failed: wcdas-s0, wcdas-s1; "
        "the loss of wcdas-s0, wcdas-s1 became NaN or infinite, "
        "so start a new sweep with a lower rate, --set lr=…\n"
    )
    reason = "wcdas-s0 failed: the loss became NaN or infinite in stage classifier, epoch 1, step"
    assert f"1/4 {reason}" in said
    lines = (out / "table.txt").read_text().splitlines()
    assert lines[2].split() == ["wcdas", "0", "of", "2", "–", "–", "–", "–"]
    assert lines[3].split()[:2] == ["softmax", "2"]
    assert lines[4].startswith(reason)
    assert said.endswith("\n".join(["", *lines, "", f"{out}\n"]))

    kept = times(out / "softmax-s0") | times(out / "softmax-s1")
    again = sweep(settings=None, out=out, resume=True, data=None)
    assert list(again.failed) == ["wcdas-s0", "wcdas-s1"]
    assert kept.items() <= times(out).items()
    with pytest.raises(WorkError, match="2 of 4 runs failed"):
        again.raise_failures()


def test_a_fault_in_a_method_of_ones_own_fails_alone(sweep, tmp_path, monkeypatch):
    def step(model, batch, state):
        raise ZeroDivisionError("by nothing")

    own = Method("a fault", "", METHODS["softmax"].defaults, training_step=step)
    monkeypatch.setitem(METHODS, "own", own)
    done = sweep("own", "softmax", seeds=1, out=tmp_path / "sweep")
    assert done.failed == {"own-s0": "ZeroDivisionError: by nothing"}
    again = rf"1 of 2 runs failed: own-s0; try them again with: wcdas sweep --out {done.path} --res"
    with pytest.raises(WorkError, match=again):
        done.raise_failures()
    assert done.results["methods"]["softmax"]["finished"] == 1


def log(run):
    """The lines of a log without the times."""
    file = run / "log.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def stopping(log):
    """Ctrl-C as soon as the second run has an epoch in its log."""

    def logged(folder, line):
        log(folder, line)
        if folder.path.name == "wcdas-s0":
            signal.raise_signal(signal.SIGINT)

    return logged


def test_stopped_and_resumed(sweep, tmp_path, times, monkeypatch):
    """Ctrl-C in the second run, a torn beginning of the third; the end is as if left alone."""
    methods, out = ["softmax", "wcdas", "wcdas-prior"], tmp_path / "stopped"
    options = {"seeds": 1, "settings": QUICK | {"epochs": 3}}
    whole = sweep(*methods, out=tmp_path / "whole", **options)
    monkeypatch.setattr(RunFolder, "log", stopping(RunFolder.log))
    with pytest.raises(WorkError, match=f"stopped; go on with: wcdas sweep --out {out} --resume"):
        sweep(*methods, out=out, **options)
    monkeypatch.undo()
    assert list((out / "wcdas-s0" / "checkpoint").iterdir())
    assert not (out / "wcdas-s0" / "metrics.json").exists()
    rows = [line.split()[:2] for line in (out / "table.txt").read_text().splitlines()[2:]]
    assert rows == [["softmax", "1"], ["wcdas", "0"], ["wcdas-prior", "0"]]
    first = times(out / "softmax-s0")
    (out / "wcdas-prior-s0").mkdir()
    (out / "wcdas-prior-s0" / ".run.toml.partial").touch()

    again = wcdas.sweep(out=out, resume=True, device="cpu", report=False)
    assert times(out / "softmax-s0") == first
    for method in methods:
        run, alone = out / f"{method}-s0", whole.path / f"{method}-s0"
        for name in ("run.toml", "metrics.json", "model.safetensors"):
            assert (run / name).read_bytes() == (alone / name).read_bytes(), name
        assert log(run) == log(alone)
    for name in ("table.txt", "table.md", "table.csv", "results.json", "sweep.toml"):
        assert (out / name).read_bytes() == (whole.path / name).read_bytes(), name
    assert not again.failed


def test_the_folder_is_named_after_the_data(sweep, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [sweep("softmax", seeds=1).path for _ in range(2)]
    assert paths == [Path("runs/pixels-sweep-1"), Path("runs/pixels-sweep-2")]
    # From elsewhere it can be gone on with, too.
    monkeypatch.chdir("runs")
    sweep(seeds=2, out="pixels-sweep-1", resume=True, data=None)
    assert Path("pixels-sweep-1/softmax-s1/metrics.json").exists()


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_shown(sweep, tmp_path, terminal):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, color_system=None)
    sweep("softmax", seeds=2, out=tmp_path / "sweep", console=console)
    said = file.getvalue()
    assert "1 method × 2 seeds: softmax\n" in said
    left = re.search(r"1/2 softmax-s0 finished in .* · \d+:\d\d:\d\d left\n", said)
    assert (left is None) is terminal
    assert re.search(r"2/2 softmax-s1 finished in \d+:\d\d:\d\d", said)
    assert ("1/2 softmax-s0 started" in said) is not terminal
    assert ("1/2 softmax-s0 epoch 0/1 · time left unknown" in said) is terminal
    assert bool(re.search(r"2/2 softmax-s1 epoch 0/1 · \d+:\d\d:\d\d", said)) is terminal


@pytest.mark.slow
def test_room_for_decoded_images_may_change(finished, sweep, tmp_path):
    """Whether they are held on a GPU was decided when a run began, and stays."""
    out = tmp_path / "copy"
    shutil.copytree(finished.path, out)
    table = out / "wcdas-s1" / "run.toml"
    table.write_text(table.read_text().replace("cache = false", "cache = true"))
    (out / "wcdas-s0" / "run.toml").write_text(table.read_text().replace("seed = 1", "seed = 0"))
    (out / "wcdas-s1" / "metrics.json").unlink()
    sweep(out=out, resume=True, data=None)
    assert tomllib.loads(table.read_text())["cache"] is True
    assert RunFolder(table.parent).is_finished

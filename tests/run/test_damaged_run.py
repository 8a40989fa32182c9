"""What is damaged in a run's folder is told in one line, and made again where it can be."""

import json
import os
import shutil
import tomllib

import pytest
import tomli_w
import torch

import wcdas
from wcdas.deploy import export
from wcdas.errors import InputError, WorkError
from wcdas.files import locked
from wcdas.run import checkpoint
from wcdas.run.folder import RunFolder

QUICK = {"epochs": 2, "backbone.name": "resnet8"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> wcdas.Run:
    out = tmp_path_factory.mktemp("runs") / "whole"
    return wcdas.train("digits-lt", settings=QUICK, out=out, device="cpu", report=False)


@pytest.fixture
def run(finished, tmp_path):
    return RunFolder(shutil.copytree(finished.path, tmp_path / "run"))


METRICS = ["{", "[]", "{}", "null", '{"method": 3}', "[" * 100_000, ""]


def damage(run, name, contents):
    file = run.path / name
    if contents is None:
        file.unlink()
    elif isinstance(contents, float):
        file.write_bytes(file.read_bytes()[: int(contents * file.stat().st_size)])
    else:
        file.write_text(contents)


@pytest.mark.parametrize(
    ("name", "contents"),
    [*(("metrics.json", text) for text in METRICS), *(("model.safetensors", s) for s in (0.5, ""))],
)
def test_a_result_is_made_again(run, finished, name, contents):
    damage(run, name, contents)
    assert not run.is_finished
    wcdas.train(out=run.path, resume=True, device="cpu", report=False)
    assert (run.path / name).read_bytes() == (finished.path / name).read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["confusion"].pop(),
        lambda m: m["confusion"][0].__setitem__(2, 10**9),
        lambda m: m["confusion"].append([0, 1, -1]),
        lambda m: m["confusion"].append([0, 1]),
        lambda m: m["per_class"][1].update(accuracy=0.123),
        lambda m: m["per_class"][1].update(test_images=3),
    ],
)
def test_metrics_that_do_not_agree_are_made_again(run, finished, change):
    metrics = json.loads((run.path / "metrics.json").read_text())
    change(metrics)
    damage(run, "metrics.json", json.dumps(metrics))
    told = r"metrics\.json is damaged: .*confusion.*; it is made again by: wcdas train"
    with pytest.raises(InputError, match=told):
        run.read_metrics()
    wcdas.train(out=run.path, resume=True, device="cpu", report=False)
    same = "metrics.json"
    assert (run.path / same).read_bytes() == (finished.path / same).read_bytes()


def test_a_damaged_model_says_how_it_is_made_again(run):
    damage(run, "model.safetensors", 0.5)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged; it is made again by: "):
        wcdas.load(run.path)


@pytest.mark.parametrize("contents", METRICS)
def test_damaged_metrics_say_how_they_are_made_again(run, contents):
    damage(run, "metrics.json", contents)
    with pytest.raises(InputError, match=r"metrics\.json is damaged: .*; it is made again by: wcd"):
        wcdas.write_report(run.path)


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", "null", '{"stage": "representation"}', '{"epoch": "one"}']
)
def test_a_damaged_line_of_the_log_is_named(run, line):
    log = run.path / "log.jsonl"
    first, *_ = log.read_text().splitlines()
    log.write_text(f"{first}\n{line}\n")
    with pytest.raises(InputError, match=r"log\.jsonl, line 2, is damaged: .*; delete the line"):
        wcdas.write_report(run.path)
    log.write_text(f"{first}\n")
    assert wcdas.write_report(run.path).exists()


def test_a_log_that_is_no_text_is_named(run):
    log = run.path / "log.jsonl"
    log.write_bytes(b"\x88" + log.read_bytes())
    damage(run, "metrics.json", None)
    with pytest.raises(InputError, match=r"log\.jsonl, line 1, is damaged: .*; delete the line"):
        wcdas.train(out=run.path, resume=True, device="cpu", report=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('source = "digits-lt"', "source = 3"),
        ("[data]", "[date]"),
        ("epochs = 2", 'epochs = "two"'),
        ("[info]", "[inform]"),
        ("fingerprint", "finger"),
        ("seed = 0", "seed = 0.5"),
        ('name = "resnet8"', "name = []"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        wcdas.write_report,
        lambda path: wcdas.export(path, "card", path / "card.md"),
        lambda path: wcdas.train(out=path, resume=True, device="cpu"),
    ],
)
def test_settings_of_another_kind_are_refused(run, command, old, new):
    table = run.path / "run.toml"
    assert old in table.read_text()
    table.write_text(table.read_text().replace(old, new))
    with pytest.raises(InputError, match=r"run\.toml is damaged: ") as refused:
        command(run.path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["run.toml", "metrics.json", "log.jsonl", "model.safetensors"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(run, name):
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    model = name == "model.safetensors"
    with pytest.raises(InputError, match=r"is a pipe|is not finished"):
        wcdas.load(run.path) if model else wcdas.write_report(run.path)


@pytest.mark.parametrize("missing", ["seed", "backbone", "calibration", "input_size", "augment"])
def test_what_run_toml_does_not_say_is_as_by_default(run, missing):
    """An older version may not have had it."""
    table = tomllib.loads((run.path / "run.toml").read_text("utf-8"))
    del table[missing]
    (run.path / "run.toml").write_text(tomli_w.dumps(table), "utf-8")
    assert missing in run.read_run()
    wcdas.write_report(run.path)
    export(run.path, "card", run.path / "card.md")


def test_a_run_at_work_is_named_before_any_work(run, monkeypatch):
    (run.path / "metrics.json").unlink()
    monkeypatch.setattr("wcdas.api.open_data", None)
    busy = r"is in use by process .* another folder with --out"
    with locked(run.path, ""):
        for resume in (False, True):
            with pytest.raises(InputError, match=busy):
                wcdas.train(out=run.path, resume=resume, device="cpu", report=False)
        with pytest.raises(InputError, match=r"is not finished: process .* is at work on it"):
            wcdas.write_report(run.path)


def test_a_run_at_work_is_left_alone(run):
    (run.path / "metrics.json").unlink()
    with (
        locked(run.path, ""),
        pytest.raises(InputError, match=r"is in use by process .* another folder with --out"),
    ):
        wcdas.train(out=run.path, resume=True, device="cpu", report=False)
    assert not (run.path / "metrics.json").exists()
    wcdas.train(out=run.path, resume=True, device="cpu", report=False)
    assert run.is_finished


@pytest.mark.parametrize("state", [{"step": 1}, [1], {"stage": "one"}, {"place": torch.ones(2)}])
def test_a_checkpoint_of_another_is_refused(run, state):
    """Its digest is right, so it is read."""
    (run.path / "metrics.json").unlink()
    checkpoint.save(run.checkpoints, 10**8, state)
    with pytest.raises((InputError, WorkError), match=r"[Dd]elete") as refused:
        wcdas.train(out=run.path, resume=True, device="cpu", report=False)
    assert "\n" not in str(refused.value)


def test_weights_of_another_network_in_a_checkpoint_are_refused(run):
    newest = max(run.checkpoints.glob("*.pt"))
    state = torch.load(newest, weights_only=True)
    state["model"] = {"x": torch.ones(1)}
    (run.path / "metrics.json").unlink()
    checkpoint.save(run.checkpoints, 10**8, state)
    with pytest.raises(InputError, match=r"is not of this run: .*; delete it"):
        wcdas.train(out=run.path, resume=True, device="cpu", report=False)

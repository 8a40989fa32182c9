"""Classes spread over processes in whole runs: the same for any number of them, also resumed."""

import json
import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import wcdas
from wcdas.errors import InputError
from wcdas.run.settings import read_request

CHILD = Path(__file__).parents[1] / "child.py"
TORCHRUN = Path(sys.executable).with_name("torchrun")
SHARDED = {"sharded": True, "epochs": 3, "batch_size": 32, "evaluate_every": 2}
SHARDED |= {"stages.representation.mixup": 0.0, "stages.representation.ema": 0.9}
SAMPLED = SHARDED | {"negatives": 0.5}
AFTER_AN_EPOCH = ("hold", 1, 0)


def given(settings):
    texts = {key: str(value).lower() for key, value in settings.items()}
    return ["--set", *(f"{key}={value}" for key, value in texts.items())]


def alone(features, settings, out, **options):
    given = {"settings": settings, "out": out, "device": "cpu", "report": False} | options
    return wcdas.train(features, **given).path


def assert_close(run, other):
    first, second = (load_file(path / "model.safetensors") for path in (run, other))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)
    logs = [[json.loads(line) for line in (p / "log.jsonl").open()] for p in (run, other)]
    assert len(logs[0]) == len(logs[1])
    for one, two in zip(*logs, strict=True):
        for key in ("loss", "scale", "rho", "angle"):
            assert one[key] == pytest.approx(two[key], rel=1e-4), key


@pytest.fixture(scope="module")
def one(features, tmp_path_factory):
    """The run of a single process."""
    return alone(features, SHARDED, tmp_path_factory.mktemp("one") / "run")


def test_the_first_lines_say_so(features, tmp_path):
    console = Console(file=StringIO(), width=200)
    settings = SHARDED | {"negatives": 0.25, "epochs": 1}
    alone(features, settings, tmp_path / "run", console=console)
    told = console.file.getvalue()
    assert "  classes: spread over 1 process, 25 % of them drawn in a step\n" in told


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_end_where_one_does(world, one, features, tmp_path, several_ranks):
    """Of ten classes four processes have 3, 3, 3 and 1."""
    ranks = several_ranks(world, features, "--out", tmp_path / "run", *given(SHARDED))
    assert [child.status() for child in ranks] == [0] * world, ranks[0].output.read_text()
    assert_close(tmp_path / "run", one)
    model = wcdas.load(tmp_path / "run", device="cpu")
    assert type(model.classifier.head) is wcdas.WCDASHead


@pytest.mark.slow
def test_a_backbone_beside_it(tmp_path, two_ranks):
    """One without batch norm; its gradients are DDP's, and clipped with those of all classes."""
    settings = SHARDED | {"backbone.name": "test_vit", "input_size": 32, "epochs": 2}
    settings |= {"stages.representation.augment": "none", "stages.representation.clip": 0.5}
    ranks = two_ranks("digits-lt", "--out", tmp_path / "two", *given(settings))
    whole = alone("digits-lt", settings, tmp_path / "one")
    assert [child.status() for child in ranks] == [0, 0], ranks[0].output.read_text()
    assert_close(tmp_path / "two", whole)


def test_a_sharpness_aware_step_has_the_norm_of_all_processes(features, tmp_path, two_ranks):
    settings = SHARDED | {"stages.representation.sam": 0.5}
    ranks = two_ranks(features, "--out", tmp_path / "two", *given(settings))
    whole = alone(features, settings, tmp_path / "one")
    assert [child.status() for child in ranks] == [0, 0], ranks[0].output.read_text()
    assert_close(tmp_path / "two", whole)


def test_it_ends_where_a_run_in_one_place_does(one, features, tmp_path):
    """But for the weights that the classes start from."""
    whole = alone(features, SHARDED | {"sharded": False}, tmp_path / "run")
    found = [json.loads((path / "metrics.json").read_text())["top1"] for path in (one, whole)]
    assert found[0] == pytest.approx(found[1], abs=0.15)


def test_negatives_are_drawn_alike_by_any_number_of_processes(features, tmp_path, two_ranks):
    ranks = two_ranks(features, "--out", tmp_path / "two", *given(SAMPLED))
    whole = alone(features, SAMPLED, tmp_path / "one")
    assert [child.status() for child in ranks] == [0, 0], ranks[0].output.read_text()
    assert_close(tmp_path / "two", whole)


@pytest.mark.parametrize("settings", [SHARDED, SAMPLED], ids=["all", "some negatives"])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_stopped_and_resumed_by_another_number_of_processes(
    before, after, settings, features, tmp_path, several_ranks, written
):
    stop_and_resume(before, after, settings, features, tmp_path, several_ranks, written)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2])
def test_a_checkpoint_of_four_is_loaded_by_fewer(after, features, tmp_path, several_ranks, written):
    stop_and_resume(4, after, SHARDED, features, tmp_path, several_ranks, written)


def stop_and_resume(before, after, settings, features, tmp_path, several_ranks, written):
    run = tmp_path / "run"
    ranks = several_ranks(before, features, "--out", run, *given(settings), happens=AFTER_AN_EPOCH)
    ranks[0].wait_for(lambda: written.log(run))
    for child in ranks:
        os.kill(child.process.pid, signal.SIGTERM)
    assert [child.status() for child in ranks] == [143] * before, ranks[0].output.read_text()
    parts = [folder for folder in (run / "checkpoint").iterdir() if folder.is_dir()]
    assert {len(list(folder.glob("*.safetensors"))) for folder in parts} == {before}
    ranks = several_ranks(after, "--out", run, "--resume")
    assert [child.status() for child in ranks] == [0] * after, ranks[0].output.read_text()
    assert_close(run, alone(features, settings, tmp_path / "whole"))


def test_a_damaged_part_is_noticed(features, tmp_path, written, start):
    """The run goes on from the checkpoint before, and ends with the same numbers."""
    run = tmp_path / "run"
    child = start(
        "train", features, "--no-report", "--out", run, *given(SHARDED), "--device", "cpu",
        checkpoint_seconds=0, happens=("hold", 2, 3),
    )  # fmt: skip
    child.wait_for(lambda: len(written.log(run)) == 2)
    os.kill(child.process.pid, signal.SIGTERM)
    assert child.status() == 143
    newest = max(folder for folder in (run / "checkpoint").iterdir() if folder.is_dir())
    (part,) = newest.glob("*.safetensors")
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    child = start("train", "--no-report", "--out", run, "--resume")
    assert child.status() == 0
    assert "is damaged, so the run goes on from the one before" in child.output.read_text()
    written.assert_same(run, alone(features, SHARDED, tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize("out", [True, False], ids=["--out", "a folder of its own"])
def test_a_killed_process_is_restarted_by_torchrun(one, out, features, tmp_path):
    """The run goes on from its last checkpoint, in the same folder."""
    command = [TORCHRUN, "--standalone", "--nproc-per-node", 2, "--max-restarts", 1]
    command += [CHILD, "kill one", 2, 1, "train", features, *given(SHARDED), "--no-report"]
    command += ["--out", tmp_path / "runs" / "own"] if out else []
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert_close(run, one)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"head.name": "cosine"},
            "sharded is true, but the head is 'cosine', and only 'wcdas' can",
        ),
        ({"amp": "fp16"}, "amp is 'fp16', whose scale every process would choose"),
        ({"stages.representation.loss": "focal"}, "the head, loss or sampler of stage repres"),
        ({"negatives": 0.5, "sharded": False}, "but the classes are not sharded; set sharded=true"),
        ({"negatives": 0.5, "stages.representation.clip": 1.0}, "clip 1, which needs all classes"),
        ({"negatives": 0}, "negatives is 0.0; expected above 0"),
    ],
)
def test_what_is_refused(settings, message, features):
    given = {"sharded": True} | settings
    with pytest.raises(InputError, match=message):
        wcdas.train(features, settings=given, device="cpu")


def test_a_method_that_needs_all_classes(features):
    with pytest.raises(InputError, match="sade-wcdas needs all classes in one place"):
        wcdas.train(features, "sade-wcdas", settings={"sharded": True}, device="cpu")


def test_from_a_hundred_thousand_classes_on(features, monkeypatch):
    dataset = wcdas.open_dataset(features)
    request = read_request(None, {}, None)
    decided = request.resolve(dataset, features, "cpu", False)[0]
    assert not decided.sharded
    monkeypatch.setattr("wcdas.run.settings.SHARDED_FROM", 10)
    assert request.resolve(dataset, features, "cpu", False)[0].sharded
    other = read_request(None, {"sharded": False}, None)
    assert not other.resolve(dataset, features, "cpu", False)[0].sharded
    linear = read_request(None, {}, "softmax")
    assert not linear.resolve(dataset, features, "cpu", False)[0].sharded

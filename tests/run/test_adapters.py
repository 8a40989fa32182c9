"""Runs that train adapters: the rest stays, a stopped run ends like a whole one, plain files."""

import signal
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import wcdas
from wcdas.backbones import create_backbone
from wcdas.errors import InputError, InterruptedRunError

OPTIONS = {"device": "cpu", "report": False}


@pytest.fixture
def settings(small_vit):
    return {
        "backbone.name": "test_vit",
        "backbone.weights": small_vit,
        "backbone.lora": 4,
        "backbone.drop_path": 0.1,
        "input_size": 32,
        "epochs": 2,
        "lr": 0.1,
        "evaluate_every": 99,
    }


class Stop(wcdas.Callback):
    def __init__(self, after):
        self.after = after

    def on_epoch(self, epoch, facts):
        if epoch == self.after:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_a_run_stopped_in_both_stages(settings, small_vit, tmp_path, monkeypatch, capsys):
    def train(*arguments, **options):
        return wcdas.train(*arguments, **options, **OPTIONS)

    monkeypatch.chdir(tmp_path)
    settings["backbone.weights"] = Path(small_vit).name
    given = {"settings": settings | {"stages.classifier.ema": 0.9}}
    whole = train("digits-lt", "wcdas", **given, out=tmp_path / "whole", console=Console(width=200))
    assert "adapters of rank 4 learn beside them" in capsys.readouterr().out
    out = tmp_path / "stopped"
    with pytest.raises(InterruptedRunError):
        train("digits-lt", "wcdas", **given, out=out, callbacks=[Stop(0)])
    with pytest.raises(InterruptedRunError):
        train(out=out, resume=True, callbacks=[Stop(2)])
    monkeypatch.chdir("/")
    resumed = train(out=out, resume=True)
    first, second = ((run.path / "model.safetensors").read_bytes() for run in (whole, resumed))
    assert first == second
    assert_adapted(whole.path, small_vit)


def assert_adapted(run, start):
    """Linear layers have changed by a matrix of rank 4, nothing else has; the names are plain."""
    before = {f"backbone.network.{k}": v for k, v in load_file(start).items()}
    after = load_file(run / "model.safetensors")
    assert {k for k in after if k.startswith("backbone.")} == set(before)
    for name, tensor in before.items():
        linear = tensor.dim() == 2 and name.startswith("backbone.network.blocks")
        assert torch.equal(after[name], tensor) != linear, name
        if linear:
            change = torch.linalg.svdvals((after[name] - tensor).double())
            assert change[4] < 1e-4 * change[0]


def test_the_file_gives_the_numbers_of_the_run(settings, tmp_path):
    run = wcdas.train("digits-lt", "softmax", settings=settings, out=tmp_path / "run", **OPTIONS)
    metrics = wcdas.evaluate_run(run, device="cpu")
    assert metrics["top1"] == run.metrics["top1"]
    assert metrics["nll"] == pytest.approx(run.metrics["nll"])
    backbone = create_backbone("test_vit", channels=1, weights=run.path / "model.safetensors")
    assert not backbone.lora
    wcdas.export(run, "hub", tmp_path / "hub")  # timm loads it, and gives the same features


@pytest.mark.parametrize("key", ["backbone.lora", "backbone.drop_path"])
def test_nothing_that_no_stage_trains(key, settings, tmp_path):
    for other in {"backbone.lora", "backbone.drop_path"} - {key}:
        del settings[other]
    for other, why in {
        "stages.representation.trains=classifier": "no stage trains it",
        "frozen=true": "it is frozen",
    }.items():
        given = [*(f"{name}={value}" for name, value in settings.items()), other]
        with pytest.raises(InputError, match=f"{key} has no effect, since {why}"):
            wcdas.train("digits-lt", "softmax", settings=given, out=tmp_path / "run", **OPTIONS)

"""A neck in every kind of model that a method builds."""

import signal
import tomllib
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import wcdas
from wcdas.errors import InterruptedRunError
from wcdas.methods import METHODS, find_method
from wcdas.methods.contrastive import KeyEncoder
from wcdas.methods.method import plain_model
from wcdas.run.model_file import FORMAT

LINEAR = {"neck.name": "linear", "neck.features": 24}
SHORT = {"epochs": 1, "evaluate_every": 99, "backbone.name": "resnet8"}
# Two stages, a head built from another, values set from features, learned sampling and weights, a
# second batch, views, momentum copies, a memory, experts.
METHODS_OF_EVERY_KIND = [
    "wcdas", "lws", "ncm", "wcdas-meta", "meta-weight-net", "equilibrium", "center-loss",
    "gaussian-affinity", "paco", "hybrid-contrastive", "proco", "oltr", "ride", "sade-wcdas",
    "balpoe",
]  # fmt: skip


def test_every_method_that_builds_a_model_is_among_them():
    own = {method.build_model for method in METHODS.values()}
    assert own == {find_method(name).build_model for name in METHODS_OF_EVERY_KIND}
    assert plain_model in own


@pytest.mark.parametrize("name", METHODS_OF_EVERY_KIND)
def test_trains_and_comes_back_from_its_file(name, tmp_path):
    settings = SHORT | LINEAR | ({"epochs": 2} if name == "ride" else {})  # its stages share them
    run = wcdas.train(
        method=name, settings=settings, out=tmp_path / "run", device="cpu", report=False
    )
    model = wcdas.load(run, device="cpu").classifier
    necks = [key for key in model.state_dict() if key.endswith("neck.linear.weight")]
    assert len(necks) == {"ride": 3, "sade-wcdas": 3, "balpoe": 3}.get(name, 1)
    assert model.head.in_features == model.backbone.num_features == 24 * len(necks)
    for key in necks:
        seen = model.state_dict()[key.replace("linear.weight", "norm.num_batches_tracked")]
        assert seen > 0, key
    assert wcdas.evaluate_run(run, device="cpu")["confusion"] == run.metrics["confusion"]


def test_a_momentum_copy_runs_in_the_precision_of_the_backbone(tmp_path, monkeypatch):
    """Features behind a neck are float32, whatever the backbone runs in."""
    seen = set()
    forward = KeyEncoder.forward

    def spy(encoder, inputs, precision):
        handle = encoder.backbone.conv1.register_forward_hook(lambda *args: seen.add(args[2].dtype))
        keys = forward(encoder, inputs, precision)
        handle.remove()
        return keys

    monkeypatch.setattr(KeyEncoder, "forward", spy)
    settings = SHORT | {"amp": "bf16", "neck.name": "batch-norm"}
    wcdas.train(method="paco", settings=settings, out=tmp_path / "run", device="cpu", report=False)
    assert seen == {torch.bfloat16}


@pytest.mark.parametrize("name", ["batch-norm", "linear"])
def test_on_features(name, on_pixels, features, tmp_path):
    run = on_pixels("wcdas", epochs=3, **{"neck.name": name})
    model = wcdas.load(run, device="cpu")
    assert (model.info.neck, model.info.neck_features, model.info.format) == (name, 0, FORMAT)
    assert wcdas.evaluate_run(run, device="cpu")["confusion"] == run.metrics["confusion"]
    x = torch.rand(5, 64)
    with torch.no_grad():
        expected = model.classifier.head(model.classifier.backbone.neck(x)).argmax(1)
    assert model.predict(x).argmax(1).equal(expected)
    wcdas.embed(run, out=tmp_path / "behind.parquet", device="cpu")
    behind = wcdas.open_dataset(tmp_path / "behind.parquet").test
    with torch.no_grad():
        expected = model.classifier.backbone.neck(wcdas.open_dataset(features).test.vectors)
    torch.testing.assert_close(behind.vectors, expected)


def test_stopped_and_resumed(features, tmp_path, monkeypatch):
    settings = {"epochs": 2, "batch_size": 16, "evaluate_every": 99} | LINEAR
    method, steps = METHODS["center-loss"], 0

    def training_step(*arguments):
        nonlocal steps
        steps += 1
        if steps == 5:
            signal.raise_signal(signal.SIGINT)
        return method.training_step(*arguments)

    options = {"device": "cpu", "report": False}
    whole = wcdas.train(
        features, "center-loss", settings=settings, out=tmp_path / "whole", **options
    )
    stopping = replace(method, training_step=training_step)
    monkeypatch.setitem(METHODS, "center-loss", stopping)
    out = tmp_path / "stopped"
    with pytest.raises(InterruptedRunError):
        wcdas.train(features, "center-loss", settings=settings, out=out, **options)
    resumed = wcdas.train(out=out, resume=True, **options)
    first, second = ((run.path / "model.safetensors").read_bytes() for run in (whole, resumed))
    assert first == second


def test_it_is_told_and_is_part_of_the_recipe(features, tmp_path, capsys):
    """On the console, on the page, in run.toml; another method takes it over, another neck not its
    width."""
    options = {"device": "cpu"}
    settings = {"epochs": 1} | LINEAR
    run = wcdas.train(
        features, settings=settings, out=tmp_path / "run", console=Console(), **options
    )
    assert "wcdas-prior: identity with neck linear and head wcdas, cpu" in capsys.readouterr().out
    page = " ".join((run.path / "report.html").read_text().split())
    assert "identity with neck linear and head wcdas" in page
    recipe, necks = run.path / "run.toml", {}
    for name, given in {
        "softmax": {"method": "softmax"},
        "norm": {"settings": {"neck.name": "batch-norm"}},
        "none": {"settings": {"neck.name": "none"}},
    }.items():
        other = wcdas.train(recipe=recipe, out=tmp_path / name, report=False, **given, **options)
        necks[name] = tomllib.loads((other.path / "run.toml").read_text())["neck"]
    assert necks == {
        "softmax": {"name": "linear", "features": 24},
        "norm": {"name": "batch-norm", "features": 0},
        "none": {"name": "none", "features": 0},
    }


def test_a_sweep_gives_it_to_all_methods(features, tmp_path):
    swept = wcdas.sweep(
        features,
        "softmax,wcdas",
        1,
        settings={"epochs": 1} | LINEAR,
        out=tmp_path / "sweep",
        device="cpu",
        report=False,
    )
    for name in ("softmax-s0", "wcdas-s0"):
        assert wcdas.load(swept.path / name, device="cpu").info.neck_features == 24

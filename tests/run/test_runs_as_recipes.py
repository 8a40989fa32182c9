"""A run.toml is a recipe: of the same run again, and of another method trained alike."""

import tomllib
from pathlib import Path

import pytest

import wcdas
from wcdas.errors import InputError

OWN = """
epochs = 1
[head]
init = -1.0
[stages.representation]
ema = 0.5
[stages.classifier]
ema = 0.9
[methods.softmax]
lr = 0.03
"""


def train(out: Path, *given, **options) -> dict:
    run = wcdas.train(*given, out=out, device="cpu", report=False, **options)
    return tomllib.loads((run.path / "run.toml").read_text())


@pytest.fixture(scope="module")
def run(features, tmp_path_factory) -> Path:
    """A run of wcdas with a recipe, a setting over it and a seed."""
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "own.toml").write_text(OWN)
    settings = {"batch_size": 32, "stages.representation.ema": 0.7}
    train(folder / "run", features, "wcdas", recipe=folder / "own.toml", settings=settings, seed=3)
    return folder / "run" / "run.toml"


def test_what_was_set_is_kept(run):
    recipe, settings = tomllib.loads(run.read_text())["info"]["given"]
    assert recipe == tomllib.loads(OWN)
    assert settings == {"batch_size": 32, "stages": {"representation": {"ema": 0.7}}}


def test_the_same_run_again(run, tmp_path):
    first = tomllib.loads(run.read_text())
    assert train(tmp_path / "again", recipe=run) == first
    changed = train(tmp_path / "changed", recipe=run, settings={"stages.classifier.ema": 0.1})
    assert changed["stages"]["classifier"].pop("ema") == 0.1
    assert first["stages"]["classifier"].pop("ema") == 0.9
    assert changed["info"].pop("given")[-1] == {"stages": {"classifier": {"ema": 0.1}}}
    first["info"].pop("given")
    assert changed == first


def test_another_method_is_trained_alike(run, features, tmp_path):
    """Data, seed and what was set are kept; head and stages are the method's own."""
    other = train(tmp_path / "softmax", recipe=run, method="softmax")
    plain = train(tmp_path / "plain", features, "softmax", settings={"epochs": 1}, seed=3)
    stage = plain["stages"]["representation"] | {"batch_size": 32, "ema": 0.7, "lr": 0.03}
    assert other["stages"] == {"representation": stage}
    for key in ("method", "seed", "data", "head", "backbone", "options"):
        assert other[key] == plain[key], key
    # The same holds for the run of a run.
    back = train(tmp_path / "back", recipe=tmp_path / "softmax" / "run.toml", method="crt")
    stages = back["stages"].values()
    assert [(s["epochs"], s["batch_size"], s["ema"]) for s in stages] == [
        (1, 32, 0.7),
        (1, 32, 0.9),
    ]
    assert back["head"]["name"] == "linear"


@pytest.mark.slow
def test_a_sweep_trains_methods_as_a_run_was(run, tmp_path):
    options = {"seeds": 1, "recipe": run, "device": "cpu", "report": False}
    swept = wcdas.sweep(methods="softmax,wcdas", out=tmp_path / "sweep", **options).path
    own, other = (
        tomllib.loads((swept / f"{name}-s0" / "run.toml").read_text())
        for name in ("wcdas", "softmax")
    )
    first = tomllib.loads(run.read_text())
    assert own == first | {"seed": 0}
    alone = train(tmp_path / "alone", recipe=run, method="softmax", seed=0)
    assert other == alone
    more = wcdas.sweep(methods="crt", out=swept, resume=True, **options)
    assert set(more.results["runs"]) == {"softmax-s0", "wcdas-s0", "crt-s0"}


def test_options_of_its_own_method_are_no_hindrance(features, tmp_path):
    settings = {"epochs": 2, "options.experts": 2}
    train(tmp_path / "ride", features, "ride", settings=settings)
    recipe = tmp_path / "ride" / "run.toml"
    assert train(tmp_path / "one", recipe=recipe, method="softmax")["options"] == {}
    swept = wcdas.sweep(
        methods="softmax", seeds=1, recipe=recipe, out=tmp_path / "s", device="cpu", report=False
    )
    assert not swept.failed


def test_the_smallest_crop_of_small_images_is_refused(tmp_path):
    message = "augment.scale has no effect, since RandomResizedCrop is from 112 pixels on, and"
    with pytest.raises(InputError, match=message):
        train(tmp_path / "run", "digits-lt", settings={"epochs": 1, "augment.scale": 0.5})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("augment.flip", True),
        ("augment.erase", 0.5),
        ("augment.scale", 0.5),
        ("stages.classifier.augment", "strong"),
        ("input_size", 32),
    ],
)
def test_what_acts_on_images_alone_is_refused_on_features(key, value, features, tmp_path):
    message = f"{key} has no effect, since features are no images; leave it out"
    with pytest.raises(InputError, match=message):
        train(tmp_path / "run", features, "wcdas", settings={"epochs": 1, key: value})
    with pytest.raises(InputError, match=message):
        wcdas.sweep(features, "wcdas", 1, settings={key: value}, out=tmp_path / "s", device="cpu")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["ride", "l-softmax"])
def test_a_run_on_features_is_a_recipe(method, features, tmp_path):
    first = train(tmp_path / "run", features, method, settings={"epochs": 2})
    assert {stage["augment"] for stage in first["stages"].values()} == {"none"}
    assert train(tmp_path / "again", recipe=tmp_path / "run" / "run.toml") == first


def test_images_that_cannot_be_read_stay_left_out(pictures, tmp_path):
    folder = pictures(tmp_path / "x", china=6, flower=6)
    (folder / "china" / "bad.png").write_bytes(b"no picture")
    settings = {"epochs": 1, "backbone.name": "resnet8"}
    first = train(tmp_path / "run", folder, settings=settings, skip_bad=True, workers=0)
    assert first["data"] == {"source": str(folder), "skip_bad": True}
    assert train(tmp_path / "again", recipe=tmp_path / "run" / "run.toml", workers=0) == first
    swept = wcdas.sweep(
        methods="softmax", seeds=1, recipe=tmp_path / "run" / "run.toml", out=tmp_path / "sweep",
        device="cpu", workers=0, report=False,
    )  # fmt: skip
    alone = tomllib.loads((swept.path / "softmax-s0" / "run.toml").read_text())
    assert alone["data"] == first["data"]
    with pytest.raises(InputError, match="1 of 13 images"):
        train(tmp_path / "bad", folder, recipe=tmp_path / "run" / "run.toml",
              settings={"data.skip_bad": False})  # fmt: skip
    with pytest.raises(InputError, match=r"data.skip_bad is 'yes'; expected true or false"):
        train(tmp_path / "bad", folder, settings={"data.skip_bad": "yes"})

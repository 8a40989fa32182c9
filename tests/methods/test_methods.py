"""Every method learns what anyone tells apart, rare or not."""

import pytest
import torch

import wcdas
from wcdas.errors import InputError
from wcdas.methods import METHODS, list_methods
from wcdas.run.diagnosis import warnings_in
from wcdas.run.folder import RunFolder
from wcdas.run.spec import build


@pytest.mark.parametrize("name", list_methods())
def test_defaults_are_a_configuration(name):
    method = METHODS[name]
    assert build({"method": name, "data": {}} | dict(method.defaults)).stages
    assert method.summary
    assert method.paper


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("paco", {"stages.representation.prior": 1.0}),
        ("meta-weight-net", {"stages.representation.loss": "focal"}),
        ("equilibrium", {"stages.classifier.label_smoothing": 0.1}),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(name, setting, tmp_path):
    with pytest.raises(InputError, match=f"{name} has its own loss; leave it out"):
        wcdas.train(method=name, settings=setting, out=tmp_path / "run", device="cpu", report=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("tau-norm", {"selection.holdout": 0.0}, "chooses on training images that no stage sees"),
        ("sade", {"options.inverse": -3.0}, "options.inverse is -3.0; expected a number of at"),
        ("oltr", {"options.centroid_weight": float("nan")}, "options.centroid_weight is nan"),
        ("gaussian-affinity", {"head.name": "wcdas"}, "the head is WCDASHead"),
        ("paco", {"batch_size": 1}, "trains on one image at a time"),
        ("equilibrium", {"stages.classifier.mixup": 0.2}, "needs images of one class there"),
        ("ride", {"stages.routing.cutmix": 1.0}, "needs images of one class there"),
        ("wcdas", {"stages.classifier.trains": "nothing"}, "wcdas sets no values there"),
        ("lws", {"head.name": "wcdas"}, "built from a linear one, but head.name is 'wcdas'"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(name, setting, message, tmp_path):
    with pytest.raises(InputError, match=message):
        wcdas.train(method=name, settings=setting, out=tmp_path / "run", device="cpu", report=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", list_methods())
def test_learns_what_anyone_tells_apart(name, on_textures):
    """Chance is one in three, for all classes and for those with few images."""
    run = on_textures(name)
    metrics = run.metrics
    assert metrics["method"] == run.model.info.method == name
    # 0.95 to 1 over ten seeds and 1, 2 and 4 threads.
    assert metrics["top1"] > 0.5
    assert metrics["few"] > 0.5  # 1.0
    assert warnings_in(RunFolder(run.path).read_log()) == []

    again = wcdas.evaluate_run(run, device="cpu")
    assert again["confusion"] == metrics["confusion"]
    assert torch.isfinite(torch.tensor(again["nll"]))

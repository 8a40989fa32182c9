"""Every method trains on the digits, and beats chance where its idea is to."""

import pytest
import torch

import wcdas
from wcdas.methods import METHODS, list_methods
from wcdas.training.config import build

# Epochs of stage 1 and 2 that are enough to see a method work. Margins of 4 learn slowly.
ENOUGH = {"l-softmax": (45, 2), "sphereface": (45, 2)}
# Nothing in these methods looks after rare classes.
NOT_FOR_THE_TAIL = {"softmax", "angular-softmax-one-stage", "focal", "center-loss", "l-softmax"}
NOT_FOR_THE_TAIL |= {"sphereface", "am-softmax", "arcface"}


@pytest.mark.parametrize("name", list_methods())
def test_defaults_are_a_configuration(name):
    method = METHODS[name]
    assert build({"method": name, "data": {}} | dict(method.defaults)).stages
    assert method.summary
    assert method.paper


@pytest.mark.parametrize("name", list_methods())
def test_beats_chance_on_the_digits(name, tmp_path):
    """Chance is one in ten, for all classes and for those with few images."""
    first, second = ENOUGH.get(name, (18, 3))
    settings = {"stages.representation.epochs": first, "evaluate_every": 99}
    if "classifier" in METHODS[name].defaults["stages"]:
        settings["stages.classifier.epochs"] = second
    run = wcdas.train(method=name, settings=settings, out=tmp_path / "run", device="cpu")
    metrics = run.metrics
    assert metrics["method"] == run.model.info.method == name
    assert metrics["top1"] > 0.3
    assert metrics["many"] > 0.5
    if name not in NOT_FOR_THE_TAIL:
        assert metrics["few"] > 0.12

    again = wcdas.evaluate_run(run, device="cpu")
    assert again["confusion"] == metrics["confusion"]
    assert torch.isfinite(torch.tensor(again["nll"]))

"""Every method trains from end to end on real images, and learns."""

import pytest
import torch

import wcdas
from wcdas.methods import METHODS, list_methods
from wcdas.training.config import build


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_list():
    assert list_methods() == list(METHODS)
    assert {"softmax", "wcdas", "wcdas-meta", "wcdas-prior", "angular-softmax"} <= set(METHODS)


@pytest.mark.parametrize("name", list_methods())
def test_defaults_are_a_configuration(name):
    method = METHODS[name]
    assert build({"method": name, "data": {}} | dict(method.defaults)).stages
    assert method.summary
    assert method.paper


@pytest.mark.parametrize("name", list_methods())
def test_beats_chance_on_the_digits(name, tmp_path):
    """Chance is 10 of 100; the largest class alone would give 10 too."""
    settings = {"stages.representation.epochs": 12, "evaluate_every": 99}
    if "classifier" in METHODS[name].defaults["stages"]:
        settings["stages.classifier.epochs"] = 2
    run = wcdas.train(method=name, settings=settings, out=tmp_path / "run", device="cpu")
    assert run.metrics["method"] == name
    assert run.metrics["top1"] > 0.25
    assert run.metrics["many"] > 0.5
    assert run.model.info.method == name

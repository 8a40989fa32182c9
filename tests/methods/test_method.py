"""Methods of one's own that are built wrongly: one line, and nothing is left."""

import pytest

import wcdas
from wcdas.errors import InputError
from wcdas.methods import METHODS, Method

HEAD, STAGES = {"name": "linear"}, {"representation": {"epochs": 1}}
GOOD = {"head": HEAD, "stages": STAGES}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"defaults": {"head": HEAD}}, "'mine' has stages None; expected defaults with stages="),
        ({"defaults": {"head": HEAD, "stages": {}}}, "has stages {}; expected"),
        ({"defaults": {"head": HEAD, "stages": ["one"]}}, r"has stages \['one'\]; expected"),
        ({"defaults": None}, "'mine' has head None; expected defaults with head="),
        ({"defaults": {"stages": STAGES}}, "'mine' has head None; expected defaults with head="),
        ({"defaults": {"head": "linear", "stages": STAGES}}, "has head 'linear'; expected"),
        ({"defaults": {"head": {"scale": 3.0}, "stages": STAGES}}, "has head {'scale': 3.0}"),
        ({"views": "simclr"}, r"has views 'simclr'; expected a tuple, \('simclr',\)"),
        ({"unmixed": "representation"}, "has unmixed 'representation'; expected a tuple"),
        ({"own_loss": "representation"}, "has own_loss 'representation'; expected a tuple"),
    ],
)
def test_a_method_that_lacks_something(given, said):
    with pytest.raises(InputError, match=said):
        Method(**{"summary": "mine", "paper": "", "defaults": GOOD} | given)


def features_alone(model, batch, state):
    state.features(batch.inputs)


def without_features(model, batch, state):
    return model.head.weight.sum()


def a_loss_of_each(model, batch, state):
    return model.head(state.features(batch.inputs)).sum(1)


def without_gradient(model, batch, state):
    return state.loss(state.features(batch.inputs), batch.target).detach()


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ({"training_step": features_alone}, "in stage representation returned None; expected the"),
        (
            {"training_step": a_loss_of_each},
            r"returned a tensor of shape \(\d+,\); expected the lo",
        ),
        ({"training_step": without_gradient}, r"of shape \(\); expected the loss, .* a gradient"),
        ({"training_step": without_features}, "never called state.features; expected it on the in"),
        ({"build_model": lambda parts: parts.backbone}, "build_model of own gave .* a Classifier"),
    ],
)
@pytest.mark.filterwarnings("error")  # no thread that still writes to the run
def test_hooks_that_give_back_something_else(hooks, said, features, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "own", Method("mine", "", GOOD, **hooks))
    with pytest.raises(InputError, match=said):
        wcdas.train(features, "own", out=tmp_path / "run", device="cpu", report=False)
    assert not (tmp_path / "run").exists()

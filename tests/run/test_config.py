"""Configurations: what is refused, and that writing and reading keep them."""

import tomllib

import pytest
import tomli_w

from wcdas.errors import InputError
from wcdas.run.spec import Stage, as_table, build, flat

BASE = {"method": "softmax", "head": {"name": "linear"}, "data": {}}


def config(**stage):
    return build(BASE | {"stages": {"representation": stage}})


def test_defaults():
    assert config().stages["representation"] == Stage()


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"epoch": 3}, r"unknown key 'stages.representation.epoch'; did you mean .*epochs'"),
        ({"epochs": 0}, r"stages.representation.epochs is 0; expected at least 1"),
        ({"epochs": 1.5}, r"epochs is 1.5; expected a whole number"),
        ({"epochs": True}, r"epochs is True; expected a whole number"),
        ({"epochs": "3"}, r"epochs is '3'; expected a whole number"),
        ({"lr": 0}, r"lr is 0.0; expected above 0"),
        ({"lr": float("nan")}, r"lr is nan; expected a finite number"),
        ({"weight_decay": 1e308}, r"weight_decay is 1e\+308; expected a number below 1e\+38"),
        ({"lr": 10**400}, r"lr is 1e\+38; expected a number below 1e\+38"),
        ({"epochs": 10**12}, r"epochs is 1000000000000; expected at most 1e\+06"),
        ({"lr": float("inf")}, r"lr is inf; expected a finite number"),
        ({"lr": True}, r"lr is True; expected a number"),
        ({"label_smoothing": 1}, r"label_smoothing is 1.0; expected below 1"),
        ({"ema": -0.1}, r"ema is -0.1; expected at least 0"),
        ({"momentum": 1.0}, r"momentum is 1.0; expected below 1"),
        ({"nesterov": 1}, r"nesterov is 1; expected true or false"),
        ({"trains": "head"}, r"trains is 'head'; expected 'all' or 'classifier'"),
        ({"schedule": "linear"}, r"schedule is 'linear'; expected 'cosine' or 'step'"),
        ({"milestones": 3}, r"milestones is 3; expected a list of numbers"),
        ({"milestones": ["a"]}, r"milestones is \['a'\]; expected a list of numbers"),
        ({"sampler_options": 3}, r"sampler_options is 3; expected a table"),
        ({"head": 3}, r"head is 3; expected a text"),
        ({"optimizer": "continue"}, r"'continue', but there is no stage before it"),
    ],
)
def test_bad_stages_are_refused(stage, message):
    with pytest.raises(InputError, match=message):
        config(**stage)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sed": 1}, "unknown key 'sed'; did you mean 'seed'"),
        ({"backbone": {"nam": "x"}}, "unknown key 'backbone.nam'; did you mean 'backbone.name'"),
        ({"backbone": "resnet50"}, "backbone is 'resnet50'; expected a table"),
        ({"neck": {"name": "linar"}}, "neck: unknown neck 'linar'; did you mean 'linear'"),
        ({"neck": {"features": 8}}, "neck: features is 8, but a neck 'none' gives as many"),
        ({"neck": {"name": "linear", "features": -1}}, "neck.features is -1; expected at least 0"),
        ({"neck": {"name": "linear", "features": 1.5}}, "neck.features is 1.5; expected a whole"),
        ({"neck": {"width": 8}}, "unknown key 'neck.width'"),
        (
            {"neck": {"name": "linear"}, "stages": {"one": {"trains": "classifier"}}},
            "neck.name is 'linear', but no stage trains it; expected a stage with trains = 'all'",
        ),
        ({"calibration": {"holdout": 0.5}}, "calibration.holdout is 0.5; expected below 0.5"),
        ({"amp": "half"}, "amp is 'half'; expected 'none' or 'bf16' or 'fp16'"),
        ({"input_size": -1}, "input_size is -1; expected at least 0"),
        ({"stages": {}}, "no stage"),
        ({"stages": {"one": 3}}, "stages.one is 3; expected a table"),
    ],
)
def test_bad_tables_are_refused(table, message):
    with pytest.raises(InputError, match=message):
        build(BASE | {"stages": {"one": {}}} | table)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"trains": "classifier"}, "trains 'all', this one 'classifier'"),
        ({"head": "fresh"}, "its head is 'fresh'"),
    ],
)
def test_an_optimizer_continues_on_the_same_parameters_only(second, message):
    stages = {"one": {}, "two": {"optimizer": "continue"}}
    assert build(BASE | {"stages": stages}).stages["two"].optimizer == "continue"
    stages["two"] |= second
    with pytest.raises(InputError, match=message):
        build(BASE | {"stages": stages})


def test_written_and_read_again_it_is_the_same():
    first = build(
        BASE
        | {
            "seed": 7,
            "backbone": {"name": "resnet10"},
            "head": {"name": "wcdas", "scale": 30, "init": "he"},
            "stages": {
                "one": {"lr": 1, "milestones": [0.5, 0.6], "loss_options": {"gamma": 2.0}},
                "two": {"trains": "classifier", "nesterov": True, "ema": 0.99},
            },
        }
    )
    again = build(tomllib.loads(tomli_w.dumps(as_table(first))))
    assert again == first
    assert list(again.stages) == ["one", "two"]


def test_flat():
    assert flat({"a": {"b": 1, "c": {"d": [2]}}, "e": 3}) == {"a.b": 1, "a.c.d": [2], "e": 3}

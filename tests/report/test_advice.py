"""Each rule speaks at the numbers it looks at, and is silent when one of them is another."""

import dataclasses
import shlex

import pytest

from wcdas.recipes.settings import check_keys, read_layers
from wcdas.report import advice
from wcdas.report.advice import RULES, advise
from wcdas.report.facts import Confusion, Facts

# Of a run there is nothing to say about.
GOOD = Facts(
    run="runs/a",
    data="digits-lt",
    method="wcdas",
    seed=3,
    many=0.9,
    medium=0.85,
    few=0.8,
    headline=0.85,
    headline_error=0.01,
    few_error=0.02,
    prior="uniform",
    prior_in_loss=False,
    pretrained=False,
    ece=0.02,
    confidence=0.86,
    top1=0.85,
    holdout=0.05,
    first_stage="representation",
    last_stage="classifier",
    epochs=60,
    train_accuracy=0.95,
    late_fall=0.0,
    never_predicted=0,
    untested=0,
    classes=10,
    confusion=Confusion("a", "b", 4, 50),
    baseline={"many": 0.9, "medium": 0.7, "few": 0.5, "headline": 0.7},
)
WORST = Confusion("cat", "dog", 30, 50)
BELOW = {"many": 0.99, "medium": 0.9, "few": 0.7, "headline": 0.95}
PAID = {"many": 0.99, "medium": 0.7, "few": 0.5, "headline": 0.7}

# A rule, what makes it speak, and for each number it looks at a value that silences it.
CASES = [
    (advice.tail_not_learnt, {"few": 0.03}, {"few": 0.3, "prior_in_loss": True}),
    (
        advice.tail_not_learnt_with_prior,
        {"few": 0.03, "prior_in_loss": True},
        {"few": 0.3, "prior_in_loss": False, "pretrained": True},
    ),
    (
        advice.logits_of_the_training_mix,
        {"prior": "train", "many": 0.95, "few": 0.5},
        {"prior": "uniform", "many": 0.6, "few": 0.9},
    ),
    (advice.classes_never_predicted, {"never_predicted": 2}, {"never_predicted": 0, "few": 0.01}),
    (advice.baseline_missing, {"baseline": None}, {"baseline": PAID, "method": "softmax"}),
    (
        advice.within_noise,
        {"baseline": BELOW, "headline": 0.94},
        {"baseline": None, "headline": 0.8, "headline_error": 0.001},
    ),
    (
        advice.worse_than_baseline,
        {"baseline": BELOW},
        {"baseline": PAID, "headline": 0.949, "headline_error": 0.2},
    ),
    (
        advice.head_paid_for_the_tail,
        {"baseline": PAID},
        {"baseline": None, "many": 0.98, "few": 0.4, "prior": "none"},
    ),
    (
        advice.probabilities_are_off,
        {"ece": 0.2, "confidence": 0.95},
        {"ece": 0.01, "confidence": None, "top1": None},
    ),
    (
        advice.still_learning,
        {"late_fall": 0.2, "train_accuracy": 0.5},
        {"late_fall": 0.0, "train_accuracy": 0.97},
    ),
    (
        advice.learnt_by_heart,
        {"train_accuracy": 1.0, "headline": 0.4},
        {"train_accuracy": 0.8, "headline": 0.9},
    ),
    (
        advice.one_confusion,
        {"confusion": WORST},
        {"confusion": Confusion("cat", "dog", 4, 4)},
    ),
    (advice.classes_not_tested, {"untested": 1}, {"untested": 0}),
    (advice.few_measured_on_little, {"few_error": 0.1}, {"few_error": 0.01}),
]

every_rule = pytest.mark.parametrize(
    ("rule", "speaks", "silenced"), CASES, ids=[rule.__name__ for rule, *_ in CASES]
)


def test_nothing_to_say_of_a_good_run():
    assert advise(GOOD) == []


def test_every_rule_is_tried():
    assert {rule for rule, *_ in CASES} == set(RULES)


@every_rule
def test_rule_speaks_and_is_silenced(rule, speaks, silenced):
    facts = dataclasses.replace(GOOD, **speaks)
    said = rule(facts)
    assert said is not None
    assert said in advise(facts)
    for name, value in silenced.items():
        assert rule(dataclasses.replace(facts, **{name: value})) is None, name


def test_nothing_measured_nothing_said():
    missing = {f.name: None for f in dataclasses.fields(Facts) if "None" in str(f.type)}
    empty = dataclasses.replace(GOOD, **missing)
    assert [said.what for said in advise(empty)] == [advice.baseline_missing(empty).what]


def test_the_calibration_advice_depends_on_the_held_out_images():
    off = dataclasses.replace(GOOD, ece=0.2, confidence=0.6)
    assert "label_smoothing" in advice.probabilities_are_off(off).command
    assert "not sure enough" in advice.probabilities_are_off(off).why
    none = advice.probabilities_are_off(dataclasses.replace(off, holdout=0.0))
    assert "calibration.holdout" in none.command


@every_rule
def test_commands_are_ones_that_wcdas_takes(rule, speaks, silenced):
    said = rule(dataclasses.replace(GOOD, **speaks))
    for command in said.command.split(" && ") if said.command else []:
        words = shlex.split(command)
        assert words[0] == "wcdas"
        if words[1] == "train":
            method = words[words.index("--method") + 1]
            settings = words[words.index("--set") + 1 :] if "--set" in words else []
            layers, _ = read_layers(None, settings, method)
            check_keys(layers, method)

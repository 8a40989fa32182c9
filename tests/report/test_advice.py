"""Each rule speaks at the numbers it looks at, and is silent when one of them is another."""

import dataclasses
import html
import re
import shlex
import shutil

import pytest

import wcdas
from wcdas import cli
from wcdas.errors import InputError
from wcdas.recipes import resolve
from wcdas.recipes.settings import read_layers
from wcdas.report import advice
from wcdas.report.advice import RULES, advise
from wcdas.report.facts import Confusion, Facts, facts_of
from wcdas.report.record import Record, read_record
from wcdas.report.settings import differing
from wcdas.training.run_folder import RunFolder

QUICK = {"epochs": 1, "batch_size": 64}

# Of a run there is nothing to say about.
GOOD = Facts(
    run="runs/a",
    recipe="runs/a/run.toml",
    beside="runs/a-softmax",
    method="wcdas",
    many=0.9,
    medium=0.85,
    few=0.8,
    headline=0.85,
    headline_error=0.01,
    few_error=0.02,
    prior="uniform",
    prior_in_loss=False,
    pretrained=False,
    network="backbone.weights=pretrained",
    ece=0.02,
    confidence=0.86,
    top1=0.85,
    holdout=0.05,
    held_out=9,
    first_stage="representation",
    last_stage="classifier",
    can_mix=True,
    can_smooth=True,
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
    sure = dataclasses.replace(GOOD, ece=0.2, confidence=1.0)
    assert "label_smoothing" in advice.probabilities_are_off(sure).command
    assert "too sure" in advice.probabilities_are_off(sure).why
    off = dataclasses.replace(GOOD, ece=0.2, confidence=0.6)
    assert not advice.probabilities_are_off(off).command  # smoothing would make it less sure yet
    assert "not sure enough" in advice.probabilities_are_off(off).why
    none = advice.probabilities_are_off(dataclasses.replace(off, holdout=0.0))
    assert "calibration.holdout" in none.command
    small = advice.probabilities_are_off(dataclasses.replace(off, held_out=0))
    assert "takes a class with 20 training images to hold some out, and none has" in small.why
    assert "larger classes alone" not in small.why


def test_what_a_method_cannot_do_is_not_suggested():
    off = dataclasses.replace(GOOD, ece=0.2, train_accuracy=1.0, headline=0.4, few=0.03)
    cannot = dataclasses.replace(
        off, can_smooth=False, can_mix=False, network="", prior_in_loss=True
    )
    for rule in (
        advice.probabilities_are_off,
        advice.learnt_by_heart,
        advice.tail_not_learnt_with_prior,
    ):
        assert rule(dataclasses.replace(off, prior_in_loss=True)).command
        assert not rule(cannot).command


@pytest.mark.parametrize(
    ("method", "mixes", "smooths"),
    [("wcdas", True, True), ("ncm", True, False), ("equalization", True, False)],
)
def test_what_a_method_can_do_is_known(method, mixes, smooths, features, tmp_path):
    run = wcdas.train(features, method, settings=QUICK, out=tmp_path / "run", device="cpu")
    facts = facts_of(read_record(run.path), None)
    assert (facts.can_mix, facts.can_smooth, facts.network) == (mixes, smooths, "")
    again = {"stages.representation.mixup": 0.1, f"stages.{facts.last_stage}.label_smoothing": 0.1}
    if smooths:
        other = wcdas.train(recipe=run.path / "run.toml", settings=again, out=tmp_path / "other")
        facts = facts_of(read_record(other.path), None)
        assert (facts.can_mix, facts.can_smooth) == (False, False)
    else:
        with pytest.raises(InputError):
            wcdas.train(recipe=run.path / "run.toml", settings=again, out=tmp_path / "other")


def test_a_network_of_this_package_gives_way_to_one_with_weights(digits_run):
    facts = facts_of(read_record(digits_run.path), None)
    assert facts.network == "backbone.name=resnet50 backbone.weights=pretrained"
    assert facts.epochs == 1
    layers, method = read_layers(digits_run.path / "run.toml", facts.network.split(), None)
    config = resolve(method, "", layers, {}, None)
    assert (config.backbone.name, config.backbone.weights) == ("resnet50", "pretrained")


@pytest.fixture(scope="module")
def own_run(features, tmp_path_factory):
    """A run with settings of its own, in a folder that a shell has to quote."""
    settings = QUICK | {"head.init": -1.0, "stages.classifier.ema": 0.5}
    out = tmp_path_factory.mktemp("advised") / "a run"
    return wcdas.train(features, settings=settings, seed=3, out=out, device="cpu").path


@every_rule
def test_commands_repeat_the_run_with_one_thing_changed(
    rule, speaks, silenced, own_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = shutil.copytree(own_run, tmp_path / "the runs" / "a run")
    facts = facts_of(read_record(run), None)
    where = {
        name: getattr(facts, name) for name in ("run", "recipe", "beside", "network", "epochs")
    }
    said = rule(dataclasses.replace(GOOD, **where, **speaks))
    for command in said.command.split(" && ") if said.command else []:
        words = shlex.split(command)
        assert words[0] == "wcdas"
        quick = ["--device", "cpu", "--no-report"] if words[1] in ("sweep", "train") else []
        assert cli._run(words[1:] + quick) == 0
    made = [path.parent for path in tmp_path.rglob("run.toml") if path.parent != run]
    assert bool(made) == ("wcdas train" in said.command or "wcdas sweep" in said.command)
    before, setting = as_written(run), re.search(r"--set ([\w.]+)=", said.command)
    for other in map(as_written, made):
        changed = set(differing([before, other]))
        if setting:
            assert changed == {setting[1]}
        elif other.run["method"] == "wcdas":
            assert changed == {"seed"}
        else:
            stage = other.run["stages"]["representation"]
            assert (stage["epochs"], stage["batch_size"]) == (1, 64)
            assert other.run["data"] == before.run["data"]


def as_written(folder):
    return Record(folder, RunFolder(folder).read_run(), [], {}, {})


def test_the_baseline_it_asks_for_is_found(own_run, tmp_path):
    run = shutil.copytree(own_run, tmp_path / "the runs" / "a run")
    page = (run / "report.html").read_text("utf-8")
    command = re.search(r"wcdas train [^<]*--method softmax[^<]*", page)[0]
    for part in html.unescape(command).replace(str(own_run.parent), str(run.parent)).split(" && "):
        assert cli._run(shlex.split(part)[1:]) == 0
    page = (run / "report.html").read_text("utf-8")
    told = "But for head and stages of the method it was trained with the same settings."
    assert f"The baseline is a run-softmax, seed 3. {told}" in page

"""Each rule speaks at the numbers it looks at, and is silent when one of them is another."""

import dataclasses
import html
import re
import shlex
import shutil
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

import wcdas
from wcdas import cli, usage
from wcdas.errors import InputError
from wcdas.report import advice
from wcdas.report.advice import RULES, advise
from wcdas.report.baseline import differing
from wcdas.report.facts import Confusion, Facts, Failing, facts_of, failing_classes
from wcdas.report.record import Record, read_record
from wcdas.run.folder import RunFolder
from wcdas.run.settings import read_request

QUICK = {"epochs": 1, "batch_size": 64}

# Of a run there is nothing to say about.
GOOD = Facts(
    run="runs/a",
    recipe="runs/a/run.toml",
    beside="runs/a-softmax",
    method="wcdas",
    many=0.9,
    few=0.8,
    headline=0.85,
    headline_error=0.01,
    few_error=0.02,
    prior="uniform",
    prior_in_loss=False,
    pretrained=False,
    frozen=False,
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
    images=300,
    batch=32,
    warned=False,
    failing=(),
    mean=0.85,
    never_predicted=0,
    barely_tested=0,
    untested=0,
    classes=10,
    confusion=Confusion("a", "b", 4, 50),
    baseline={"many": 0.9, "few": 0.5, "headline": 0.7},
)
LYNX = Failing("lynx", 0.14, 50, 3, "cat", 40)
DOG = Failing("dog", 0.4, 50, 300, "cat", 25)
WORST = Confusion("cat", "dog", 30, 50)
BELOW = {"many": 0.99, "few": 0.7, "headline": 0.95}
PAID = {"many": 0.99, "few": 0.5, "headline": 0.7}

# A rule, what makes it speak, and for each number it looks at a value that silences it.
CASES = [
    (
        advice.learnt_nothing,
        {"mean": 0.12, "train_accuracy": 0.2, "epochs": 2},
        {"mean": 0.2, "train_accuracy": 0.95},
    ),
    (advice.epochs_of_a_single_step, {"images": 30}, {"images": 64, "batch": 8}),
    (advice.classes_that_fail, {"failing": (LYNX,)}, {"failing": ()}),
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
    (
        advice.classes_never_predicted,
        {"never_predicted": 2},
        {"never_predicted": 0, "few": 0.01, "failing": (LYNX,)},
    ),
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
        {"baseline": None, "many": 0.98, "few": 0.4, "prior": "train"},
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
        advice.backbone_not_trained,
        {"frozen": True, "headline": 0.4},
        {"frozen": False, "headline": 0.9},
    ),
    (
        advice.one_confusion,
        {"confusion": WORST},
        {"confusion": Confusion("cat", "dog", 4, 4), "failing": (replace(DOG, name="cat"),)},
    ),
    (advice.classes_barely_tested, {"barely_tested": 2}, {"barely_tested": 0, "few_error": 0.1}),
    (advice.classes_not_tested, {"untested": 1}, {"untested": 0}),
    (
        advice.few_measured_on_little,
        {"few_error": 0.1},
        {"few_error": 0.01, "headline_error": 0.2},  # the latter asks for seeds already
    ),
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


def test_what_matters_most_comes_first_and_no_more_than_six():
    everything = {name: value for _, speaks, _ in CASES[1:] for name, value in speaks.items()}
    said = advise(replace(GOOD, **everything))
    assert len(said) == advice.MOST
    assert said[0] == advice.epochs_of_a_single_step(replace(GOOD, **everything))


def test_of_a_run_that_learnt_nothing_no_number_is_read():
    facts = {"mean": 0.1, "headline": 0.1, "few": 0.0, "train_accuracy": 0.1, "ece": 0.5}
    nothing = replace(GOOD, **facts, failing=(LYNX, DOG), never_predicted=9, baseline=BELOW)
    (only,) = advise(replace(nothing, warned=True))
    assert only.what.startswith("Do first what the warning above says")
    assert "guessing among 10 gives 10.0 %" in only.why
    assert "--set stages.representation.epochs=30" in advise(replace(nothing, epochs=3))[0].command
    assert "--methods softmax,wcdas-prior,wcdas --seeds" in advise(nothing)[0].command
    softmax = advise(replace(nothing, method="softmax"))[0].command
    assert "--methods softmax,wcdas-prior --seeds" in softmax


def test_failing_classes_are_named_with_their_numbers():
    said = advice.classes_that_fail(replace(GOOD, failing=(LYNX, DOG)))
    assert said.what == (
        "Give lynx more training images and look at the images and labels of dog, or put the class "
        "prior in the loss."
    )
    assert said.why == (
        "lynx, with 3 training images: 14.0 % of 50 test images right, 40 taken for cat; "
        "dog, with 300 training images: 40.0 % of 50 test images right, 25 taken for cat; "
        "the mean over classes is 85.0 %."
    )
    assert said.command == GOOD.train("--method wcdas-prior")
    several = [replace(LYNX, name=f"class {i}") for i in range(5)]
    said = advice.classes_that_fail(replace(GOOD, failing=tuple(several), prior_in_loss=True))
    assert said.what == "Give class 0, class 1 and class 2 more training images."
    assert "class 3" not in said.why
    assert said.why.endswith("85.0 %, and 5 of 10 are 20 points or more below it.")
    assert not said.command
    labels = advice.classes_that_fail(replace(GOOD, failing=(DOG,)))
    assert labels.what == "Look at the images and labels of dog."
    assert not labels.command


def test_the_prior_is_not_advised_twice():
    tail = replace(GOOD, few=0.03, failing=(LYNX,))
    commands = [said.command for said in advise(tail)]
    assert commands.count(GOOD.train("--method wcdas-prior")) == 1


def record_of(*classes):
    """A run's record, by (training images, right answers, test images) of every class; mistakes
    are taken for the first class, those of the first for the second."""
    rows, confusion = [], []
    for i, (train, right, test) in enumerate(classes):
        accuracy = right / test if test else None
        rows.append(
            {"class": f"c{i}", "train_images": train, "test_images": test, "accuracy": accuracy}
        )
        if test > right:
            confusion.append([i, int(i == 0), test - right])
    measured = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    mean = sum(measured) / len(measured)
    metrics = {"per_class": rows, "confusion": confusion, "balanced_accuracy": mean}
    return Record(None, {}, [], metrics, {})


@pytest.mark.parametrize(
    ("right", "test", "fails"),
    [
        (7, 50, True),
        (35, 50, True),
        (42, 50, False),
        (60, 100, True),
        (2, 3, False),  # nobody can be sure
        (0, 3, True),
        (0, 2, False),
        (0, 1, False),
        (0, 0, False),
    ],
)
def test_a_class_fails_that_is_surely_far_below_the_others(right, test, fails):
    good = [(100, 47, 50)] * 9
    found = failing_classes(record_of(*good, (5, right, test)))
    expected = [Failing("c9", right / test, test, 5, "c0", test - right)] if fails else []
    assert found == expected


def test_the_worst_come_first_and_none_where_all_are_alike():
    good = [(100, 48, 50)] * 8
    found = failing_classes(record_of(*good, (9, 20, 50), (5, 4, 50)))
    assert [one.name for one in found] == ["c9", "c8"]
    assert failing_classes(record_of(*[(100, 5, 50)] * 10)) == []


def test_the_calibration_advice_depends_on_the_held_out_images():
    sure = dataclasses.replace(GOOD, ece=0.2, confidence=1.0)
    assert "label_smoothing" in advice.probabilities_are_off(sure).command
    assert "too sure" in advice.probabilities_are_off(sure).why
    off = dataclasses.replace(GOOD, ece=0.2, confidence=0.6)
    assert not advice.probabilities_are_off(off).command  # smoothing would make it less sure yet
    assert "not sure enough" in advice.probabilities_are_off(off).why
    none = advice.probabilities_are_off(dataclasses.replace(off, holdout=0.0))
    assert "calibration.holdout" in none.command
    two = advice.probabilities_are_off(dataclasses.replace(off, held_out=2))
    assert "Only 2 images could be held out for a temperature." in two.why
    some = advice.probabilities_are_off(dataclasses.replace(off, held_out=12))
    assert "The temperature was fitted on 12 images, too few to help." in some.why
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


def test_the_note_of_a_single_step_is_on_the_page_too(features, tmp_path):
    said = StringIO()
    settings = {"epochs": 1, "batch_size": 512}
    console = Console(file=said, width=500)
    run = wcdas.train(
        features, settings=settings, out=tmp_path / "a", device="cpu", console=console
    )
    images, smaller = re.search(
        r"note: with (\d+) .* single step; .*batch_size=(\d+)", said.getvalue()
    ).groups()
    page = (run.path / "report.html").read_text("utf-8")
    assert f"With {images} training images and batches of 512 an epoch is a single step." in page
    assert f"--set batch_size={smaller}" in page


def test_a_network_of_this_package_gives_way_to_one_with_weights(digits_run):
    facts = facts_of(read_record(digits_run.path), None)
    assert facts.network == "backbone.name=tf_efficientnet_lite0 backbone.weights=pretrained"
    assert facts.epochs == 1
    config = read_request(digits_run.path / "run.toml", facts.network.split(), None).check("")
    assert (config.backbone.name, config.backbone.weights) == (
        "tf_efficientnet_lite0",
        "pretrained",
    )


@pytest.fixture(scope="module")
def own_run(features, tmp_path_factory):
    """A run with settings of its own, in a folder that a shell has to quote."""
    settings = QUICK | {"head.init": -1.0, "stages.classifier.ema": 0.5}
    out = tmp_path_factory.mktemp("advised") / "a run"
    return wcdas.train(features, "wcdas", settings=settings, seed=3, out=out, device="cpu").path


@pytest.mark.slow
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
    said = rule(dataclasses.replace(GOOD, **where | speaks))
    for command in said.command.split(" && ") if said.command else []:
        words = shlex.split(command)
        assert words[0] == "wcdas"
        quick = ["--device", "cpu", "--no-report"] if words[1] in ("sweep", "train") else []
        assert usage.run(cli.app, words[1:] + quick) == 0
    made = [path.parent for path in tmp_path.rglob("run.toml") if path.parent != run]
    assert bool(made) == ("wcdas train" in said.command or "wcdas sweep" in said.command)
    before, setting = as_written(run), re.search(r"--set ([\w.]+)=", said.command)
    stages = ("representation", "classifier")
    for other in map(as_written, made):
        changed = set(differing([before, other]))
        if setting:
            bare = {f"stages.{stage}.{setting[1]}" for stage in stages}
            assert changed == ({setting[1]} if "." in setting[1] else bare)
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
        assert usage.run(cli.app, shlex.split(part)[1:]) == 0
    page = (run / "report.html").read_text("utf-8")
    told = "But for head and stages of the method it was trained with the same settings."
    assert f"The baseline is a run-softmax, seed 3. {told}" in page

"""The level of chance is what the best constant logits reach on the draws of a stage."""

import math

import pytest
import torch
import torch.nn.functional as F

from wcdas.losses import create_loss
from wcdas.run.diagnosis import chance
from wcdas.run.stage import StageTraining
from wcdas.targets import MixedLabels

STAGE = {"epochs": 1, "augment": "none"}


def level(run, counts_right=True):
    return chance(run.step, run.sampler.class_probabilities(0, 1), counts_right)


def best_constant(loss, classes):
    """The lowest loss over constant logits, by a minimiser, and that of equal ones."""
    logits = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    minimiser = torch.optim.LBFGS([logits], max_iter=500, line_search_fn="strong_wolfe")

    def closure():
        minimiser.zero_grad()
        value = loss(logits)
        value.backward()
        return value

    minimiser.step(closure)
    return float(loss(logits.detach())), float(loss(torch.zeros(classes, dtype=torch.float64)))


@pytest.mark.parametrize("sampler", ["instance-balanced", "class-balanced", "square-root"])
@pytest.mark.parametrize(
    "options",
    [{}, {"prior": 1.0}, {"label_smoothing": 0.1}, {"prior": 0.5, "label_smoothing": 0.2}],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_cross_entropy(make_loop, sampler, options, mixed):
    stage = STAGE | {"sampler": sampler} | options
    run = StageTraining(make_loop(backbone="identity", stage=stage).run, 0)
    shares = run.sampler.class_probabilities(0, 1)
    labels = torch.multinomial(shares, 20_000, replacement=True)
    target = F.one_hot(labels, 10).double()
    if mixed:
        pairs = MixedLabels(labels, labels.flip(0), torch.tensor(0.3))
        target = 0.3 * target + 0.7 * F.one_hot(pairs.second, 10).double()
    counts = torch.bincount(run.run.dataset.train.labels).double()
    added = options.get("prior", 0.0) * (counts / counts.sum()).log()

    def loss(logits):
        spread = (logits + added).expand(len(target), 10)
        return F.cross_entropy(spread, target, label_smoothing=options.get("label_smoothing", 0.0))

    found, (best, equal) = level(run), best_constant(loss, 10)
    assert found.accuracy == pytest.approx(float(target.mean(0).max()), abs=0.02)
    assert found.loss == pytest.approx(best, abs=0.02)
    assert found.untrained == pytest.approx(equal, abs=0.05)
    assert found.guess == 0.1


@pytest.mark.parametrize("name", ["balanced-softmax", "logit-adjustment"])
def test_losses_with_a_prior(make_loop, name):
    run = StageTraining(make_loop(backbone="identity", stage=STAGE | {"loss": name}).run, 0)
    labels = run.run.dataset.train.labels
    counts = torch.bincount(labels)
    its = create_loss(name, class_counts=counts)
    best, equal = best_constant(lambda z: its(z.expand(len(labels), 10), labels), 10)
    assert level(run).loss == pytest.approx(best, abs=1e-6)
    assert level(run).untrained == pytest.approx(equal, abs=1e-6)


@pytest.mark.parametrize(
    ("head", "loss"),
    [("arcface", "cross-entropy"), ("am-softmax", "cross-entropy"), ("l-softmax", "cross-entropy")]
    + [("linear", name) for name in ("focal", "ldam", "class-balanced", "equalization")],
)
def test_margins_and_other_losses_have_no_level(make_loop, head, loss):
    run = StageTraining(
        make_loop(head=head, backbone="identity", stage=STAGE | {"loss": loss}).run, 0
    )
    found = level(run)
    assert (found.loss, found.untrained) == (None, None)
    assert found.accuracy == pytest.approx(120 / 331)


def test_a_method_with_a_step_of_its_own_has_no_level(make_loop):
    loop = make_loop(backbone="identity", method="center-loss", stage=STAGE)
    assert level(StageTraining(loop.run, 0)).loss is None


def test_where_right_answers_are_not_counted_an_angular_head_is_held_against_equal_logits(
    make_loop,
):
    found = {}
    for head in ("linear", "wcdas"):
        run = StageTraining(make_loop(head=head, backbone="identity", stage=STAGE).run, 0)
        found[head] = level(run, counts_right=False).loss
        assert level(run).loss < 1.8
    assert found["linear"] < 1.8
    assert found["wcdas"] == pytest.approx(math.log(10))

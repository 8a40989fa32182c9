"""The memory of weak classes' features, and the two stages around it."""

import pytest
import torch

from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.losses import EquilibriumLoss
from wcdas.methods.equilibrium import EQUILIBRIUM, FeatureMemory, build_model, training_step
from wcdas.methods.method import Parts, StepBatch, StepState

COUNTS = torch.tensor([5, 3, 2])


def numbered(labels, start):
    """Features that tell which they are."""
    numbers = torch.arange(start, start + len(labels)).float()
    return torch.stack([numbers, -numbers], 1), torch.tensor(labels)


@pytest.mark.parametrize(
    "batches",
    [
        [[0, 1, 0], [2, 0, 0], [0, 0, 1]],
        [[0] * 11, [1, 0], [0] * 5],  # more of a batch than a queue is long
        [[2], [2], [2], [2], [2], [2]],
    ],
)
def test_the_memory_holds_the_last_features_of_every_class(batches):
    memory, lists, start = FeatureMemory(3, 2, size=4), {0: [], 1: [], 2: []}, 0
    for labels in batches:
        features, of_class = numbered(labels, start)
        memory.remember(features, of_class)
        for number, label in enumerate(labels, start):
            lists[label].append(number)
        start += len(labels)
    for j, numbers in lists.items():
        assert memory.seen[j] == len(numbers)
        held = memory.queue[j, : min(len(numbers), 4), 0].tolist()
        assert sorted(held) == numbers[-4:]


def test_weak_classes_are_drawn_in_inverse_proportion_to_their_scores():
    memory = FeatureMemory(4, 2, size=4)
    memory.remember(*numbered([0, 0, 0, 1, 1, 2], 0))  # none of class 3
    scores = torch.tensor([0.8, 0.4, 0.1, 0.01])
    torch.manual_seed(0)
    features, labels = memory.draw(scores, 20_000, 2)
    shares = torch.bincount(labels, minlength=4) / len(labels)
    expected = (1 / scores) * torch.tensor([1, 1, 1, 0])
    torch.testing.assert_close(shares, expected / expected.sum(), atol=0.01, rtol=0)
    of_feature = torch.tensor([0, 0, 0, 1, 1, 2])[features[:, 0].long()]
    assert of_feature.equal(labels)
    first = features[labels == 0, 0].long()
    even = torch.bincount(first, minlength=3) / len(first)
    torch.testing.assert_close(even, torch.full((3,), 1 / 3), atol=0.03, rtol=0)


@pytest.fixture
def model():
    torch.manual_seed(0)
    backbone = create_backbone("identity", channels=4, input_size=0)
    new_head = lambda length: create_head("linear", length, 3)  # noqa: E731
    return build_model(Parts(backbone, new_head, COUNTS, EQUILIBRIUM.options))


def state_of(model, stage, **options):
    options = EQUILIBRIUM.options | options
    return StepState(stage, COUNTS, options, model.features, model.head.loss)


X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
BATCH = StepBatch(X, Y, Y)


def test_the_second_stage_adds_drawn_features_to_the_batch(model):
    torch.manual_seed(1)
    loss = training_step(model, BATCH, state_of(model, "classifier"))
    memory, reference = FeatureMemory(3, 4, 80), EquilibriumLoss(3)
    memory.remember(X, Y)
    torch.manual_seed(1)
    drawn, labels = memory.draw(reference.scores, 8, 4)
    assert drawn.shape == (32, 4)
    x, y = torch.cat([X, drawn]), torch.cat([Y, labels])
    torch.testing.assert_close(loss, reference(model.head(x), y))
    torch.testing.assert_close(model.auxiliary.loss.scores, reference.scores)


def test_without_the_memory_it_is_the_loss_alone(model):
    loss = training_step(model, BATCH, state_of(model, "classifier", memory_classes=0))
    torch.testing.assert_close(loss, EquilibriumLoss(3)(model.head(X), Y))


def test_the_first_stage_is_plain(model):
    before = {name: value.clone() for name, value in model.auxiliary.state_dict().items()}
    loss = training_step(model, BATCH, state_of(model, "representation"))
    torch.testing.assert_close(loss, model.head.loss(X, Y))
    torch.testing.assert_close(dict(model.auxiliary.state_dict()), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_size": 0}, r"options.memory_size is 0; expected at least 1"),
        ({"memory_classes": -1}, r"options.memory_classes is -1; expected at least 0"),
        ({"alpha": 1.5}, r"options.alpha is 1.5; expected a number from 0 to 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    backbone = create_backbone("identity", channels=4)
    with pytest.raises(InputError, match=message):
        build_model(Parts(backbone, None, COUNTS, EQUILIBRIUM.options | options))


def test_once_loaded(on_textures, loaded_top1):
    """Scores of the last checkpoint are those of training, not those it began with."""
    run = on_textures("equilibrium")
    assert run.model.info.prior == "none"
    assert loaded_top1(run) == pytest.approx(run.metrics["top1"])
    latest = max((run.path / "checkpoint").iterdir())
    state = torch.load(latest, weights_only=True)["model"]
    scores = state["auxiliary.loss.scores"]
    assert ((scores > 0.5) & (scores <= 1)).all()  # every class is found; they began at 0.01
    assert (state["auxiliary.memory.seen"] > 0).all()

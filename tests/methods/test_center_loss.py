"""Center loss as a method: what is added to softmax, and how centers move."""

import numpy as np
import pytest
import torch

from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.methods.center_loss import build_model, training_step
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.targets import MixedLabels

COUNTS = torch.tensor([5, 3, 2])
OPTIONS = {"weight": 0.4, "alpha": 0.5}


@pytest.fixture
def model():
    torch.manual_seed(0)
    backbone = create_backbone("identity", channels=4, input_size=0)
    new_head = lambda length: create_head("linear", length, 3)  # noqa: E731
    return build_model(Parts(backbone, new_head, COUNTS, OPTIONS)).double()


def state_of(model):
    return StepState("representation", COUNTS, OPTIONS, model.features, model.head.loss)


def batch_of(size=8):
    x = torch.randn(size, 4, dtype=torch.float64)
    y = torch.arange(size) % 3
    return StepBatch(x, y, y)


def test_a_step_by_hand(model):
    """Equations 2 to 5 of the paper: the sum of both losses, then the move of the centers."""
    model.auxiliary.centers.normal_()
    before, batch = model.auxiliary.centers.numpy().copy(), batch_of()
    x, y = batch.inputs.numpy(), batch.labels.numpy()
    loss = training_step(model, batch, state_of(model))
    logits = x @ model.head.weight.detach().numpy().T + model.head.bias.detach().numpy()
    softmax = np.log(np.exp(logits).sum(1)) - logits[np.arange(8), y]
    pull = 0.5 * ((x - before[y]) ** 2).sum(1)
    assert loss.item() == pytest.approx((softmax + 0.4 * pull).mean())
    for j in range(3):
        delta = (before[j] - x[y == j]).sum(0) / (1 + (y == j).sum())
        np.testing.assert_allclose(model.auxiliary.centers[j].numpy(), before[j] - 0.5 * delta)


def test_mixed_labels_pull_to_both_centers(model):
    model.auxiliary.centers.normal_()
    centers, batch = model.auxiliary.centers.clone(), batch_of()
    target = MixedLabels(batch.labels, batch.labels.flip(0), 0.3)
    model.auxiliary.eval()
    loss = training_step(model, batch._replace(target=target), state_of(model))
    pulls = [(batch.inputs - centers[y]).square().sum(1).mean() for y in target[:2]]
    expected = model.head.loss(batch.inputs, target) + 0.2 * (0.3 * pulls[0] + 0.7 * pulls[1])
    torch.testing.assert_close(loss, expected)


def test_centers_are_no_parameters_and_no_part_of_the_model_file(model):
    assert list(model.auxiliary.parameters()) == []
    assert "auxiliary.centers" in model.state_dict()


def test_bad_options_are_refused():
    backbone = create_backbone("identity", channels=4)
    with pytest.raises(InputError, match=r"options.weight is -1.0; expected a number above 0"):
        build_model(Parts(backbone, None, COUNTS, {"weight": -1.0, "alpha": 0.5}))


def test_once_loaded(on_textures, loaded_top1):
    run = on_textures("center-loss")
    assert not any("centers" in name for name in run.model.classifier.state_dict())
    assert loaded_top1(run) == pytest.approx(run.metrics["top1"])


def test_on_features(on_pixels):
    run = on_pixels("center-loss", **{"epochs": 10, "options.weight": 0.01})
    assert run.metrics["top1"] > 0.5  # 0.85 to 0.88 over ten seeds; chance is 0.1

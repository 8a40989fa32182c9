"""SADE: the three losses, and what they make of the experts."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import wcdas
from wcdas.backbones import create_backbone
from wcdas.data import open_dataset
from wcdas.deploy.model import run_split
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.losses import BalancedSoftmaxLoss
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.methods.sade import SADE, build_model, log_priors, training_step
from wcdas.targets import MixedLabels

COUNTS = torch.tensor([10, 60, 5, 25])


def model_of(head: str = "cosine", counts: torch.Tensor = COUNTS) -> Classifier:
    torch.manual_seed(0)
    backbone = create_backbone("identity", channels=6)
    new_head = lambda length: create_head(head, length, len(counts))  # noqa: E731
    return build_model(Parts(backbone, new_head, counts, SADE.options))


def state_of(model: Classifier, **options: Any) -> StepState:
    given = SADE.options | options

    def loss(features, target, head, log_prior):
        return head.loss(features, target, log_prior=log_prior)

    return StepState("representation", COUNTS, given, model.features, loss)


def batch_of(size: int = 8) -> StepBatch:
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (size,), generator=random)
    return StepBatch(torch.randn(size, 6, generator=random), labels, labels)


def test_priors_of_the_three_experts():
    even, balanced, inverse = log_priors(COUNTS, 2.0).double().numpy()
    pi, reverse = np.array([10, 60, 5, 25]) / 100, np.array([25, 5, 60, 10]) / 100
    np.testing.assert_allclose(even, np.zeros(4))
    np.testing.assert_allclose(balanced, np.log(pi), rtol=1e-6)
    np.testing.assert_allclose(inverse, np.log(pi) - 2 * np.log(reverse), rtol=1e-6)


def test_equal_classes_need_no_correction():
    shifts = log_priors(torch.full((5,), 7), 2.0)
    torch.testing.assert_close(shifts - shifts[:, :1], torch.zeros(3, 5))


def inverse_softmax(z: np.ndarray, labels: np.ndarray, strength: float) -> float:
    """−log(π_y π̄_y^−λ e^(z_y) / Σ_j π_j π̄_j^−λ e^(z_j))."""
    pi, reverse = np.array([10, 60, 5, 25]) / 100, np.array([25, 5, 60, 10]) / 100
    e = pi * reverse**-strength * np.exp(z)
    return float(-np.log(e[np.arange(len(z)), labels] / e.sum(1)).mean())


@pytest.mark.parametrize("kind", ["linear", "cosine", "wcdas"])
@pytest.mark.parametrize("strength", [1.0, 2.0])
def test_the_loss_of_a_step_is_the_sum_of_the_three(kind, strength):
    model, batch = model_of(kind), batch_of()
    z = model.head.expert_logits(model.features(batch.inputs)).detach()
    first = F.cross_entropy(z[0], batch.labels)
    second = BalancedSoftmaxLoss(COUNTS)(z[1], batch.labels)
    third = inverse_softmax(z[2].double().numpy(), batch.labels.numpy(), strength)
    loss = training_step(model, batch, state_of(model, inverse=strength))
    torch.testing.assert_close(loss, first + second + third)


def test_mixed_images():
    model, batch = model_of(), batch_of()
    first, second = batch.labels, batch.labels.flip(0)
    targets = MixedLabels(first, second, 0.3), first, second
    mixed, one, two = (
        training_step(model, batch._replace(target=target), state_of(model)) for target in targets
    )
    torch.testing.assert_close(mixed, 0.3 * one + 0.7 * two)


def test_a_step_reads_no_value():
    """Tensors without values refuse to be read, as a graph of CUDA kernels would."""
    model, batch = model_of("wcdas").to("meta"), batch_of()
    labels = batch.labels.to("meta")
    state = state_of(model)
    state.class_counts = COUNTS.to("meta")
    training_step(model, StepBatch(batch.inputs.to("meta"), labels, labels), state).backward()


def test_a_class_without_images_is_refused():
    with pytest.raises(InputError, match="sade needs an image of every class, but class 1"):
        model_of(counts=torch.tensor([3, 0]))


def test_experts_favour_head_even_and_tail_classes():
    """Features that say nothing leave each expert with a class mix: π, none, and π̄^λ."""
    model, labels = model_of("linear"), torch.arange(4).repeat_interleave(COUNTS)
    batch = StepBatch(torch.ones(len(labels), 6), labels, labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(500):
        optimizer.zero_grad()
        training_step(model, batch, state_of(model, inverse=2.0)).backward()
        optimizer.step()
    found = model.head.expert_logits(model.features(batch.inputs[:1])).softmax(2)[:, 0]
    pi, reverse = torch.tensor([10.0, 60, 5, 25]), torch.tensor([25.0, 5, 60, 10])
    expected = torch.stack([pi, torch.ones(4), reverse**2])
    torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True), rtol=0, atol=1e-3)


@pytest.fixture(scope="module", params=["sade", "sade-wcdas"])
def run(request, on_textures) -> wcdas.Run:
    return on_textures(request.param)


def test_what_a_run_leaves(run):
    assert run.model.info.prior == "none"
    again = wcdas.evaluate_run(run, device="cpu")
    assert {key: run.metrics[key] for key in again} == again  # also of the loaded model


def test_logits_are_the_mean_of_the_experts(run, textures):
    features, logits = run_split(run.model, open_dataset(textures).test, 0)
    with torch.no_grad():
        each = run.model.classifier.head.expert_logits(features)
    torch.testing.assert_close(logits.inputs, each.mean(0))


def test_weighed_on_the_test_images(run):
    plain = wcdas.evaluate_run(run, device="cpu")
    correction = wcdas.Correction(aggregate_experts=True)
    weighed = wcdas.evaluate_run(run, correction=correction, device="cpu")
    assert "expert_weights" not in plain
    assert sum(weighed["expert_weights"]) == pytest.approx(1)
    assert weighed["expert_weights"] != [pytest.approx(1 / 3)] * 3  # where they began
    assert weighed["nll"] != plain["nll"]
    assert wcdas.evaluate_run(run, correction=correction, device="cpu") == weighed

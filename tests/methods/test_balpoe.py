"""BalPoE: the losses of the experts, and that their product is balanced."""

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
from wcdas.methods.balpoe import BALPOE, build_model, log_priors, training_step
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.run.spec import build
from wcdas.targets import MixedLabels

COUNTS = torch.tensor([10, 60, 5, 25])
PI = np.array([10, 60, 5, 25]) / 100


def model_of(head: str = "cosine", counts: torch.Tensor = COUNTS, **options: Any) -> Classifier:
    torch.manual_seed(0)
    backbone = create_backbone("identity", channels=6)
    new_head = lambda length: create_head(head, length, len(counts))  # noqa: E731
    return build_model(Parts(backbone, new_head, counts, BALPOE.options | options))


def state_of(model: Classifier, prior: float = 1.0, **options: Any) -> StepState:
    """As a stage with this prior has it."""
    own = prior * (COUNTS / COUNTS.sum()).log()

    def loss(features, target, head, log_prior):
        return head.loss(features, target, log_prior=own.to(log_prior) + log_prior)

    return StepState("representation", COUNTS, BALPOE.options | options, model.features, loss)


def batch_of(size: int = 8) -> StepBatch:
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (size,), generator=random)
    return StepBatch(torch.randn(size, 6, generator=random), labels, labels)


# What `limits_sequence` of the authors' code gives, and `tau_list` of their configs.
@pytest.mark.parametrize(
    ("experts", "prior", "spread", "tau"),
    [
        (3, 1.0, 1.0, [0, 1, 2]),
        (3, 1.25, 1.25, [0, 1.25, 2.5]),
        (3, 1.0, 2.0, [-1, 1, 3]),
        (2, 1.0, 1.0, [0, 2]),
        (5, 1.0, 1.0, [0, 0.5, 1, 1.5, 2]),
        (7, 1.0, 1.0, [i / 3 for i in range(7)]),
        (3, 1.0, 0.0, [1, 1, 1]),
    ],
)
def test_priors_are_spread_evenly_around_that_of_the_stage(experts, prior, spread, tau):
    own = prior * np.log(PI)
    found = own + log_priors(COUNTS, experts, spread).double().numpy()
    np.testing.assert_allclose(found, np.outer(tau, np.log(PI)), rtol=1e-6, atol=1e-6)


def adjusted(z: np.ndarray, labels: np.ndarray, tau: float) -> float:
    """−log(π_y^τ e^(z_y) / Σ_j π_j^τ e^(z_j))."""
    e = PI**tau * np.exp(z)
    return float(-np.log(e[np.arange(len(z)), labels] / e.sum(1)).mean())


@pytest.mark.parametrize("kind", ["linear", "cosine", "wcdas"])
@pytest.mark.parametrize("experts", [2, 3, 5])
def test_the_loss_of_a_step_is_the_mean_over_the_experts(kind, experts):
    model, batch = model_of(kind, experts=experts), batch_of()
    z = model.head.expert_logits(model.features(batch.inputs)).detach().double().numpy()
    tau = np.linspace(0, 2, experts)
    expected = [
        adjusted(z_k, batch.labels.numpy(), tau_k) for z_k, tau_k in zip(z, tau, strict=True)
    ]
    loss = training_step(model, batch, state_of(model, experts=experts))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)


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


def test_the_product_is_balanced_whatever_the_experts_are():
    """Features that say nothing leave each expert with its own class mix, π^(1 − τ)."""
    model, labels = model_of("linear"), torch.arange(4).repeat_interleave(COUNTS)
    batch = StepBatch(torch.ones(len(labels), 6), labels, labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.6)
    for _ in range(1000):
        optimizer.zero_grad()
        training_step(model, batch, state_of(model)).backward()
        optimizer.step()
    features = model.features(batch.inputs[:1])
    found = model.head.expert_logits(features).softmax(2)[:, 0]
    mixes = torch.tensor(np.stack([PI ** (1 - tau) for tau in (0, 1, 2)])).float()
    torch.testing.assert_close(found, mixes / mixes.sum(1, keepdim=True), rtol=0, atol=1e-3)
    balanced = torch.full((1, 4), 0.25)
    torch.testing.assert_close(model.head(features).softmax(1), balanced, rtol=0, atol=1e-3)


def test_experts_of_equal_posteriors_multiply_to_the_balanced_one():
    """Where each knows p(x|y) and favours its own mix, the mean of the logits favours none."""
    likelihood = torch.randn(8, 4, generator=torch.Generator().manual_seed(2)).double()
    log_pi = torch.tensor(PI).log()
    for experts in (2, 3, 7):
        tau = torch.linspace(0, 2, experts).double()
        z = likelihood + (1 - tau)[:, None, None] * log_pi
        for z_k, tau_k in zip(z, tau, strict=True):  # what its loss makes the posterior of training
            torch.testing.assert_close(
                (z_k + tau_k * log_pi).softmax(1), (likelihood + log_pi).softmax(1)
            )
        torch.testing.assert_close(z.mean(0).softmax(1), likelihood.softmax(1))


def test_without_spread_it_is_the_mean_of_balanced_experts():
    model, batch = model_of(), batch_of()
    z = model.head.expert_logits(model.features(batch.inputs))
    log_pi = (COUNTS / COUNTS.sum()).log()
    expected = torch.stack([F.cross_entropy(z_k + log_pi, batch.labels) for z_k in z]).mean()
    torch.testing.assert_close(training_step(model, batch, state_of(model, spread=0.0)), expected)


@pytest.mark.parametrize(
    ("stage", "prior"),
    [
        ({}, "uniform"),
        ({"prior": 1.25}, "uniform"),
        ({"prior": 0.0}, "train"),
        ({"prior": 2.0}, "none"),
    ],
)
def test_the_product_follows_the_prior_of_the_stage(stage, prior):
    defaults = BALPOE.defaults
    own = {"representation": defaults["stages"]["representation"] | stage}
    table = {"method": "balpoe", "data": {}} | dict(defaults) | {"stages": own}
    assert build(table).prior == prior


def test_only_the_first_layers_are_shared():
    """As `share_layer2 = False` has it: two of three layers are an expert's, of whole width."""
    parts = Parts(
        create_backbone("resnet32"),
        lambda length: create_head("cosine", length, 4),
        COUNTS,
        BALPOE.options,
    )
    backbone = build_model(parts).backbone
    assert backbone.sizes == [64, 64, 64]
    shared = create_backbone("resnet32").stage1
    count = lambda module: sum(p.numel() for p in module.parameters())  # noqa: E731
    stem = 3 * 16 * 9 + 2 * 16
    assert count(backbone.trunk) == stem + count(shared)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experts": 1}, "options.experts is 1; expected 2 to"),
        ({"width": 0.0}, "options.width is 0.0; expected above 0"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        model_of(**options)


def test_a_class_without_images_is_refused():
    with pytest.raises(InputError, match="balpoe needs an image of every class, but class 1"):
        model_of(counts=torch.tensor([3, 0]))


@pytest.fixture(scope="module", params=["balpoe", "balpoe-wcdas"])
def run(request, on_textures) -> wcdas.Run:
    return on_textures(request.param)


def test_what_a_run_leaves(run):
    assert run.model.info.prior == "uniform"
    again = wcdas.evaluate_run(run, device="cpu")
    assert {key: run.metrics[key] for key in again} == again  # also of the loaded model


def test_logits_are_the_mean_of_the_experts(run, textures):
    features, logits = run_split(run.model, open_dataset(textures).test, 0)
    with torch.no_grad():
        each = run.model.classifier.head.expert_logits(features)
    torch.testing.assert_close(logits.inputs, each.mean(0))

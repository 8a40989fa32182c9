"""RIDE: experts driven apart, most in the tail, and routers that learn who needs more of them."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import wcdas
from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.heads.experts import ALWAYS, RoutedExpertsHead
from wcdas.losses import LDAMLoss
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Parts, StageStart, StepBatch, StepState
from wcdas.methods.ride import (
    RIDE,
    begin_stage,
    build_model,
    diversity,
    relative_temperature,
    routing_loss,
    training_step,
)
from wcdas.run.optimizer import create_optimizer
from wcdas.run.spec import Stage
from wcdas.targets import MixedLabels

COUNTS = torch.tensor([60, 25, 10, 5])


def model_of(head: str = "cosine", **options: Any) -> Classifier:
    torch.manual_seed(0)
    parts = Parts(
        create_backbone("identity", channels=6),
        lambda length: create_head(head, length, len(COUNTS)),
        COUNTS,
        RIDE.options | options,
    )
    return build_model(parts)


def state_of(model: Classifier, stage: str, **options: Any) -> StepState:
    def loss(features, target, head):
        return head.loss(features, target)

    return StepState(stage, COUNTS, RIDE.options | options, model.features, loss)


def batch_of(size: int = 8) -> StepBatch:
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (size,), generator=random)
    return StepBatch(torch.randn(size, 6, generator=random), labels, labels)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_diversity_by_hand():
    z = np.random.default_rng(0).normal(size=(3, 5, 4)) * 3
    t = np.array([1.0, 0.9, 0.8, 0.7])
    mean = softmax(z.mean(0) / t)
    divergences = [(mean * np.log(mean / softmax(expert / t))).sum(1).mean() for expert in z]
    value = diversity(torch.tensor(z), torch.tensor(t))
    assert value.item() == pytest.approx(t.mean() ** 2 * sum(divergences), rel=1e-10)
    same = torch.tensor(z[:1]).expand(3, -1, -1)
    assert diversity(same, torch.tensor(t)).item() == pytest.approx(0, abs=1e-12)


def disagreement(z: Tensor) -> float:
    p = z.softmax(-1)
    return sum(
        (p[i] * (p[i] / p[j]).log()).sum(1).mean().item() for i in range(3) for j in range(3)
    )


def test_a_step_of_the_diversity_term_raises_disagreement():
    z = torch.randn(3, 50, 4, generator=torch.Generator().manual_seed(0)).double()
    z.requires_grad_()
    (-RIDE.options["diversity"] * diversity(z, torch.ones(4).double())).backward()
    assert disagreement(z.detach() - 10 * z.grad) > 1.01 * disagreement(z.detach())


def test_temperature_is_lower_for_rarer_classes():
    """β = γ n/mean(n) + 1 − γ; the paper's α(β + 1 − max β) is the same to first order in γ."""
    n = COUNTS.double().numpy()
    for slope in (0.05, 0.001):
        beta = slope * n / n.mean() + 1 - slope
        ours = relative_temperature(COUNTS, slope).double().numpy()
        np.testing.assert_allclose(ours, beta / beta.max(), rtol=1e-6)
        np.testing.assert_allclose(ours, beta + 1 - beta.max(), atol=10 * slope**2)
    assert (relative_temperature(COUNTS, 0.05).diff() < 0).all()
    assert relative_temperature(COUNTS, 0.0).equal(torch.ones(4))
    assert relative_temperature(torch.tensor([10_000, 1, 0]), 0.5).min() > 0


def test_the_loss_of_a_step_is_ldam_of_each_expert_less_diversity():
    model, batch = model_of(), batch_of()
    head, ldam = model.head, LDAMLoss(COUNTS)
    state = state_of(model, "representation")
    state.loss = lambda features, target, expert: ldam(expert(features, target), target)
    z = head.expert_logits(model.features(batch.inputs))
    apart = 0.2 * diversity(z, torch.ones(4))
    expected = sum(ldam(expert, batch.labels) for expert in z) - apart
    torch.testing.assert_close(training_step(model, batch, state), expected)
    state.stage = "reweighting"
    apart = 0.2 * diversity(z, relative_temperature(COUNTS, 0.05))
    expected = sum(ldam(expert, batch.labels) for expert in z) - apart
    torch.testing.assert_close(training_step(model, batch, state), expected)


def prior_state(model: Classifier, diversity: float) -> tuple[StepState, Tensor]:
    """The state of a stage with the class prior in its loss, as `ride-wcdas` has it."""
    log_prior = (COUNTS / COUNTS.sum()).log()
    state = state_of(model, "representation", diversity=diversity)
    state.log_prior = log_prior
    state.loss = lambda x, target, expert: expert.loss(x, target, log_prior=log_prior)
    return state, log_prior


def test_diversity_is_of_the_logits_with_the_prior():
    model, batch = model_of("wcdas"), batch_of()
    state, log_prior = prior_state(model, diversity=0.45)
    z = model.head.expert_logits(model.features(batch.inputs)).detach().double() + log_prior
    p = z.log_softmax(-1)
    divergences = F.kl_div(
        p, z.mean(0).log_softmax(-1).expand_as(p), log_target=True, reduction="sum"
    )
    entropies = sum(F.cross_entropy(expert, batch.labels) for expert in z)
    expected = entropies - 0.45 * divergences / len(batch.labels)
    assert training_step(model, batch, state).item() == pytest.approx(expected.item(), rel=1e-5)


def test_with_the_prior_diversity_does_not_rule_the_tail():
    """Its part of the slopes of the rarest class's weights, in multiples of cross-entropy's."""
    model, random = model_of("linear"), torch.Generator().manual_seed(0)
    labels = torch.multinomial(COUNTS.double(), 4000, replacement=True, generator=random)
    batch = StepBatch(3 * torch.randn(4000, 6, generator=random), labels, labels)

    def slope(diversity: float, *, with_prior: bool) -> Tensor:
        state, log_prior = prior_state(model, diversity)
        state.log_prior = log_prior if with_prior else None
        weights = [expert.weight for expert in model.head.experts]
        slopes = torch.autograd.grad(training_step(model, batch, state), weights)
        return torch.stack(slopes)[:, -1]

    def share(*, with_prior: bool) -> float:
        of_loss = slope(0.0, with_prior=with_prior)
        return float((slope(0.45, with_prior=with_prior) - of_loss).norm() / of_loss.norm())

    assert share(with_prior=True) < 0.5 < share(with_prior=False)  # 0.40 and 0.69


def test_mixed_images_train_the_experts():
    model, batch = model_of("wcdas"), batch_of()
    mixed = batch._replace(target=MixedLabels(batch.labels, batch.labels.flip(0), 0.3))
    state = state_of(model, "representation", diversity=0.0)
    parts = model.features(batch.inputs).split(6, dim=1)
    expected = sum(e.loss(x, mixed.target) for e, x in zip(model.head.experts, parts, strict=True))
    torch.testing.assert_close(training_step(model, mixed, state), expected)


@pytest.mark.parametrize("stage", ["representation", "reweighting", "routing"])
def test_a_step_reads_no_value(stage):
    """Tensors without values refuse to be read, as a graph of CUDA kernels would."""
    model = model_of("wcdas").to("meta")
    batch = batch_of()
    labels = batch.labels.to("meta")
    state = state_of(model, stage)
    state.class_counts = COUNTS.to("meta")
    training_step(model, StepBatch(batch.inputs.to("meta"), labels, labels), state).backward()


def test_routing_loss_is_weighted_binary_cross_entropy():
    model, batch = model_of(), batch_of(200)
    head, features = model.head, model.features(batch.inputs)
    z = head.expert_logits(features).detach()
    means = torch.stack([z[: k + 1].mean(0) for k in range(3)])
    right = means.argmax(2) == batch.labels
    first = ~right[0] & (right[1] | right[2])
    second = ~right[1] & right[2]
    assert 0 < first.sum() < 200
    assert 0 < second.sum() < 200
    expected = F.binary_cross_entropy_with_logits(
        head.calls(features, means),
        torch.stack([first, second]).float(),
        pos_weight=torch.tensor(100.0),
    )
    torch.testing.assert_close(routing_loss(head, features, batch.labels, 100.0), expected)


def test_the_routing_stage_trains_nothing_but_routers():
    model, batch = model_of(), batch_of(64)
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = create_optimizer(model, Stage(trains="classifier", lr=0.01, weight_decay=5e-4))
    state = state_of(model, "routing")
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(training_step(model, batch, state))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    changed = {name for name, value in model.named_parameters() if not value.equal(before[name])}
    assert changed == {name for name in before if ".hidden." in name or ".router." in name}


def test_routers_learn_who_needs_another_expert():
    """The first expert is wrong where a feature is above 0, and the second knows."""
    head = RoutedExpertsHead([create_head("linear", 2, 2) for _ in range(2)], top=2)
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    x[:, 0] += x[:, 0].sign()
    labels = (x[:, 0] > 0).long()
    with torch.no_grad():
        for expert, weight in zip(head.experts, ([0.0, 0.0], [0.0, 9.0]), strict=True):
            expert.weight.copy_(torch.tensor([[0.0, 0.0], weight]).flip(1))
            expert.bias.copy_(torch.tensor([1.0, 0.0]) if not any(weight) else torch.zeros(2))
    features = torch.cat([x, x], dim=1)
    routers = [*head.hidden.parameters(), *head.router.parameters()]
    optimizer = torch.optim.SGD(routers, lr=0.1, momentum=0.9)
    for _ in range(200):
        optimizer.zero_grad()
        routing_loss(head, features, labels, 1.0).backward()
        optimizer.step()
    head.threshold.fill_(0.0)
    used = head.experts_used(features)
    # 1.0 over ten seeds.
    assert (used == 1 + labels).float().mean() > 0.95
    assert (head(features).argmax(1) == labels).float().mean() > 0.9


@pytest.mark.parametrize(
    ("threshold", "logit"), [(0.5, 0.0), (0.9, 2.1972246), (0.0, ALWAYS), (1.0, -ALWAYS)]
)
def test_the_threshold_holds_from_the_routing_stage_on(threshold, logit):
    model = model_of()
    for stage, expected in (("representation", ALWAYS), ("routing", logit)):
        options = RIDE.options | {"threshold": threshold}
        start = StageStart(stage, COUNTS, options, lambda: None, lambda: None)
        begin_stage(model, start)
        assert model.head.threshold.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"experts": 1}, "options.experts is 1"),
        ({"width": 2.0}, "options.width is 2"),
        ({"threshold": 1.5}, "threshold is 1.5; expected 0 to 1"),
        ({"temperature": 0.0}, "temperature is 0.0; expected above 0"),
        ({"temperature_slope": 1.0}, "temperature_slope is 1.0; expected at least 0 and below 1"),
        ({"router_logits": 0}, "router_logits is 0; expected at least 1"),
    ],
)
def test_options_out_of_range(option, message):
    with pytest.raises(InputError, match=message):
        model_of(**option)


@pytest.fixture(scope="module", params=["ride", "ride-wcdas"])
def run(request, on_textures) -> wcdas.Run:
    return on_textures(request.param)


def test_what_a_run_leaves(run):
    head = run.model.classifier.head
    assert head.threshold == 0
    assert run.model.info.prior == {"ride": "none", "ride-wcdas": "uniform"}[run.metrics["method"]]
    again = wcdas.evaluate_run(run, device="cpu")
    assert {key: run.metrics[key] for key in again} == again  # also of the loaded model


def test_trained_experts_differ(run):
    images = torch.randn(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model = run.model.classifier
        answers = model.head.expert_logits(model.features(images)).argmax(2)
    assert (answers[0] != answers[1]).any()
    assert (answers[1] != answers[2]).any()

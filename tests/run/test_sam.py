"""Sharpness-aware steps: the gradient of where the loss is worst nearby, and nothing else of it."""

import copy
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wcdas
from wcdas.errors import InputError, InterruptedRunError
from wcdas.methods import METHODS
from wcdas.run.optimizer import create_optimizer
from wcdas.run.sam import copies, second_pass
from wcdas.run.stage import StageTraining, enter_stage

STATELESS = [torch.zeros(1)], [torch.zeros(1)]
PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "augment": "none", "lr": 0.1}


def begun(loop):
    """A stage before its first step."""
    enter_stage(loop.run, 0)
    stage = StageTraining(loop.run, 0)
    stage.parallel.train()
    stage.begin_epoch(0, 0)
    stage.set_rate(stage.stage.lr)
    return stage


def batch_of(stage):
    """The batch of its first step."""
    batch = stage.data.next(stage.clock.step).batch
    stage.begin_epoch(0, 0)
    return batch


def norm_of(gradients):
    return torch.stack([g.double().square().sum() for g in gradients]).sum().sqrt()


def test_steps_on_a_function_are_those_of_the_paper():
    """L(w) = Σ_i log(1 + e^(−a_i·w)) + w·B·w in NumPy; its two parameters share a norm."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(6, 5)), np.diag(random.uniform(0.1, 3, size=5))
    w, rho, eta = random.normal(size=5), 0.7, 0.2

    def slope(w):
        return -(a / (1 + np.exp(a @ w))[:, None]).sum(0) + 2 * b @ w

    parts = [nn.Parameter(torch.tensor(part)) for part in (w[:2], w[2:])]
    optimizer = torch.optim.SGD(parts, lr=eta)
    points, curves = torch.tensor(a), torch.tensor(b)

    def loss():
        x = torch.cat(parts)
        return F.softplus(-points @ x).sum() + x @ curves @ x

    for _ in range(5):
        optimizer.zero_grad()
        loss().backward()
        norm = norm_of([p.grad for p in parts])
        with second_pass(parts, *STATELESS, norm, rho):
            worse = w + rho * slope(w) / np.linalg.norm(slope(w))
            np.testing.assert_allclose(torch.cat(parts).detach().numpy(), worse, rtol=1e-12)
            optimizer.zero_grad()
            loss().backward()
        optimizer.step()
        w = w - eta * slope(worse)
        np.testing.assert_allclose(torch.cat(parts).detach().numpy(), w, rtol=1e-12)


def test_weights_and_state_are_put_back_to_the_last_bit():
    torch.manual_seed(0)
    w = [nn.Parameter(torch.randn(1000) * 10.0**k) for k in range(-3, 4)]
    still = nn.Parameter(torch.ones(3))  # nothing reaches it
    state, count = torch.randn(5), torch.zeros((), dtype=torch.int64)
    before = copies([state, count])
    kept = copies(w)
    for p in w:
        p.grad = torch.randn(1000)
    state += 1
    count += 1
    after = copies([state, count])
    norm = norm_of([p.grad for p in w]).float()
    with second_pass([*w, still], [state, count], before, norm, 0.05):
        assert not any(p.equal(k) for p, k in zip(w, kept, strict=True))
        assert still.equal(torch.ones(3))
        assert state.equal(before[0])
        assert count.equal(before[1])
        state -= 7
    assert all(p.equal(k) for p, k in zip(w, kept, strict=True))
    assert state.equal(after[0])
    assert count.equal(after[1])


def test_a_gradient_of_nothing_moves_nothing():
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.zeros(3)
    with second_pass([w], *STATELESS, torch.zeros(()), 0.05):
        assert w.equal(torch.ones(3))


def test_nothing_reads_a_value():
    """Tensors without values refuse to be read, as a graph of CUDA kernels would."""
    w = [nn.Parameter(torch.ones(3, device="meta")) for _ in range(2)]
    state = [torch.ones(2, device="meta"), torch.zeros((), dtype=torch.int64, device="meta")]
    before = copies(state)
    for p in w:
        p.grad = torch.ones(3, device="meta")
    norm = nn.utils.get_total_norm([p.grad for p in w])
    with second_pass(w, state, before, norm, 0.05):
        torch.cat(w).sum().backward()


@pytest.mark.parametrize("algorithm", ["sgd", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_a_step_is_two_passes_by_hand(make_loop, algorithm, clip):
    """Batch norm and all, with mixed images; the clipped gradient is that of the second pass."""
    settings = {"sam": 0.3, "mixup": 0.4, "prior": 1.0, "algorithm": algorithm, "clip": clip}
    stage = begun(make_loop("wcdas", "resnet8", one=PLAIN | settings))
    hand, batch = copy.deepcopy(stage.model).train(), batch_of(stage)
    optimizer = create_optimizer(hand, stage.stage)
    w = list(hand.parameters())
    kept = copies(w)

    def gradients():
        features = hand.features(batch.inputs)
        loss = hand.head.loss(features, batch.target, log_prior=stage.step.log_prior)
        return torch.autograd.grad(loss, w)

    first = gradients()
    statistics = {name: value.clone() for name, value in hand.named_buffers()}
    with torch.no_grad():
        for p, g in zip(w, first, strict=True):
            p += 0.3 / norm_of(first).float() * g
    second = gradients()
    norm = norm_of(second).float()
    assert norm > 0.5
    stage.train_step()
    stepped = list(stage.model.parameters())
    off = [p.grad - g * (clip / norm if clip else 1) for p, g in zip(stepped, second, strict=True)]
    assert norm_of(off) < 1e-3 * norm
    with torch.no_grad():  # from where the first pass was, by that very gradient
        for p, before, own in zip(w, kept, stepped, strict=True):
            p.copy_(before)
            p.grad = own.grad
    optimizer.step()
    assert all(p.equal(own) for p, own in zip(w, stepped, strict=True))
    for name, value in stage.model.named_buffers():
        assert value.equal(statistics[name]), name
    tracked = [v for n, v in stage.model.named_buffers() if n.endswith("num_batches_tracked")]
    assert tracked
    assert all(count == 1 for count in tracked)


def test_the_log_is_of_the_first_pass(make_loop):
    losses = []
    for sam in (0.0, 2.0):
        stage = begun(make_loop("linear", "resnet8", one=PLAIN | {"sam": sam}))
        stage.train_step()
        losses.append(stage.statistics.sums.clone())
    assert losses[0].equal(losses[1])


def test_parts_of_a_batch_give_the_step_of_the_batch(make_loop):
    whole, cut = (
        begun(make_loop("wcdas", "identity", one=PLAIN | {"sam": 0.5, "accumulate": parts}))
        for parts in (1, 3)
    )
    start = whole.model.head.weight.detach().clone()
    whole.train_step()
    cut.train_step()
    assert not whole.model.head.weight.equal(start)
    torch.testing.assert_close(cut.model.head.weight, whole.model.head.weight)


def test_the_classifier_alone(make_loop):
    """The weights of a frozen backbone stay, and its norm is none of ‖g‖."""
    stage = begun(make_loop("linear", "resnet8", one=PLAIN | {"sam": 0.5, "trains": "classifier"}))
    head, before = stage.model.head, copy.deepcopy(stage.model)
    batch = batch_of(stage)
    with torch.no_grad():
        x = before.eval().features(batch.inputs)
    pair = [before.head.weight, before.head.bias]
    first = torch.autograd.grad(F.cross_entropy(x @ pair[0].T + pair[1], batch.labels), pair)
    near = [p + 0.5 * g / norm_of(first).float() for p, g in zip(pair, first, strict=True)]
    second = torch.autograd.grad(F.cross_entropy(x @ near[0].T + near[1], batch.labels), near)
    stage.train_step()
    torch.testing.assert_close(head.weight, pair[0] - 0.1 * second[0])
    torch.testing.assert_close(head.bias, pair[1] - 0.1 * second[1])
    same = before.backbone.state_dict()
    for name, value in stage.model.backbone.state_dict().items():
        assert value.equal(same[name]), name


def test_the_second_pass_leaves_queue_and_momentum_alone(make_loop):
    """PaCo pushes keys and moves their encoder once in a step, not twice."""
    plain, sharp = (
        begun(make_loop("linear", "resnet8", method="paco", representation=PLAIN | {"sam": sam}))
        for sam in (0.0, 0.1)
    )
    for stage in (plain, sharp):
        stage.train_step()
    extra, expected = sharp.model.auxiliary, plain.model.auxiliary
    assert extra.queue.position == 32
    torch.testing.assert_close(extra.queue.state_dict(), expected.queue.state_dict())
    torch.testing.assert_close(extra.encoder.state_dict(), expected.encoder.state_dict())
    assert not sharp.model.head.weight.equal(plain.model.head.weight)


@pytest.mark.parametrize(
    "method", ["meta-weight-net", "equilibrium", "oltr", "balpoe", "wcdas-meta"]
)
def test_methods_with_a_state_of_their_own_train_so(method, features, tmp_path):
    stages = METHODS[method].defaults["stages"]
    settings = {f"stages.{name}.sam": 0.05 for name in stages}
    given = {"epochs": 1, "evaluate_every": 9, "lr": 0.05} | settings
    run = wcdas.train(
        features, method, settings=given, out=tmp_path / "run", device="cpu", report=False
    )
    assert run.metrics["top1"] > 0


def test_stopped_and_resumed(features, tmp_path, monkeypatch):
    """There is nothing of it in a checkpoint."""
    settings = {"epochs": 2, "batch_size": 16, "evaluate_every": 99, "lr": 0.05}
    settings |= {"stages.representation.sam": 0.1, "stages.representation.ema": 0.9}

    def train(out, **options):
        return wcdas.train(
            features, "tried", out=tmp_path / out, device="cpu", **options, report=False
        )

    method, steps = METHODS["center-loss"], 0

    def stopped_step(*arguments):
        nonlocal steps
        steps += 1
        if steps == 9:  # the first pass of the fifth step
            signal.raise_signal(signal.SIGINT)
        return method.training_step(*arguments)

    monkeypatch.setitem(METHODS, "tried", method)
    whole = train("whole", settings=settings)
    monkeypatch.setitem(METHODS, "tried", replace(method, training_step=stopped_step))
    with pytest.raises(InterruptedRunError):
        train("stopped", settings=settings)
    monkeypatch.setitem(METHODS, "tried", method)
    resumed = wcdas.train(out=tmp_path / "stopped", resume=True, device="cpu", report=False)
    first, second = ((run.path / "model.safetensors").read_bytes() for run in (whole, resumed))
    assert first == second


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages.representation.sam": -0.1}, "sam is -0.1; expected at least 0"),
        (
            {"stages.representation.sam": 0.1, "amp": "fp16"},
            "stage representation: sam is 0.1, but amp is 'fp16', whose first gradients may be",
        ),
        (
            {"stages.representation.sam": 0.1, "sharded": True, "negatives": 0.5},
            "negatives is 0.5, and stages.representation.sam 0.1, which needs all classes",
        ),
    ],
)
def test_what_cannot_be_is_refused(settings, message, tmp_path):
    with pytest.raises(InputError, match=message):
        wcdas.train(settings=settings, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_stage_that_trains_nothing_has_none(tmp_path):
    settings = {"stages.classifier.sam": 0.1}
    with pytest.raises(InputError, match=r"classifier.sam has no effect, since nothing is trained"):
        wcdas.train(method="ncm", settings=settings, out=tmp_path / "run", device="cpu")

"""Meta-Weight-Net: its gradient by finite differences, its SGD, and which way weights go."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.func import functional_call
from torch.nn import functional as F

from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.methods.meta_weight_net import (
    META_WEIGHT_NET,
    WeightNet,
    build_model,
    meta_gradient,
    sample_losses,
    training_step,
)
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.targets import MixedLabels

COUNTS = torch.tensor([5, 3, 2])


def model_of(backbone="resnet32", channels=1, head="linear", classes=3):
    torch.manual_seed(0)
    parts = Parts(
        create_backbone(backbone, channels=channels, input_size=8),
        lambda length: create_head(head, length, classes),
        COUNTS,
        META_WEIGHT_NET.options,
    )
    return build_model(parts)


def images(count=6, seed=0, classes=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 8, 8, generator=generator, dtype=torch.float64)
    return x, torch.arange(count) % classes


def meta_loss(model, theta, lr):
    """L_meta(ŵ(Θ)) from beginning to end: the weights, the step they make, the loss after it."""
    names = [n for n, _ in model.named_parameters() if n.startswith(("backbone", "head"))]
    w = {n: model.get_parameter(n).detach().clone().requires_grad_() for n in names}
    buffers = {n: b.clone() for n, b in model.named_buffers()}
    (x, y), (x_meta, y_meta) = images(), images(seed=1)
    losses = F.cross_entropy(functional_call(model, (w, buffers), x), y, reduction="none")
    v = functional_call(model.auxiliary.mlp, theta, losses.detach()[:, None])[:, 0]
    slopes = torch.autograd.grad((v / v.sum() * losses).sum(), list(w.values()))
    stepped = {n: p - lr * g for (n, p), g in zip(w.items(), slopes, strict=True)}
    return F.cross_entropy(functional_call(model, (stepped, buffers), x_meta), y_meta).item()


@pytest.mark.parametrize("head", ["linear", "wcdas"])
def test_the_gradient_by_finite_differences(head):
    """Through the step of the whole network, batch norm in training mode."""
    model = model_of(head=head).double().train()
    net, lr = model.auxiliary, 0.5
    before = copy.deepcopy(model.state_dict())
    (x, y), meta = images(), images(seed=1)
    losses = sample_losses(model.head, model.features(x), y)
    running = {n: b.clone() for n, b in model.named_buffers()}
    gradient = meta_gradient(model, net, losses, meta, model.features, lr)
    # nothing of the trial is left in the model
    torch.testing.assert_close(dict(model.named_buffers()), running, rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())

    model.load_state_dict(before)
    theta = {n: p.detach().clone() for n, p in net.mlp.named_parameters()}
    checked = 0
    for (name, values), slope in zip(theta.items(), gradient, strict=True):
        for i in torch.linspace(0, values.numel() - 1, 7).long().unique():
            ends = []
            for step in (1e-5, -1e-5):
                moved = {n: v.clone() for n, v in theta.items()}
                moved[name].view(-1)[i] += step
                ends.append(meta_loss(model, moved, lr))
            numeric = (ends[0] - ends[1]) / 2e-5
            assert slope.view(-1)[i].item() == pytest.approx(numeric, rel=1e-4, abs=1e-9)
            checked += abs(numeric) > 1e-7
    assert checked > 5


def state_of(model, lr=0.1):
    options = META_WEIGHT_NET.options
    return StepState("representation", COUNTS, options, model.features, model.head.loss, lr=lr)


def test_a_step_is_the_weighted_loss_with_the_new_weights():
    model = model_of().double()
    twin, (x, y) = copy.deepcopy(model), images()
    loss = training_step(model, StepBatch(x, y, y, (), images(seed=1)), state_of(model))
    losses = F.cross_entropy(twin(x), y, reduction="none")
    v = model.auxiliary.mlp(losses.detach()[:, None])[:, 0]
    torch.testing.assert_close(loss, (v * losses).sum() / v.sum())
    loss.backward()
    (v * losses).sum().div(v.sum()).backward()
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert name.startswith("auxiliary") or torch.allclose(p.grad, q.grad), name
    # batch norm has seen the batch once
    own, other = dict(model.backbone.named_buffers()), dict(twin.backbone.named_buffers())
    torch.testing.assert_close(own, other)


def test_the_step_is_the_authors_sgd_and_travels():
    """`optimizer_c` of their code: SGD(lr, momentum=0.9, nesterov=True, weight_decay)."""
    net = WeightNet(hidden=5, lr=0.01, weight_decay=0.1)
    twin = copy.deepcopy(net.mlp).requires_grad_()
    sgd = torch.optim.SGD(twin.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1)
    other = WeightNet(hidden=5, lr=0.01, weight_decay=0.1)
    for step in range(6):
        if step == 3:
            other.load_state_dict(net.state_dict())
            net = other
        for p in twin.parameters():
            p.grad = torch.randn_like(p)
        net.step([p.grad for p in twin.parameters()])
        sgd.step()
        torch.testing.assert_close(list(net.mlp.parameters()), [p.data for p in twin.parameters()])
    assert not any(p.requires_grad for p in net.parameters())


def separable(counts, noise=0.3, seed=0):
    """Points round the corners of a square, a class each."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    return corners[y] + noise * torch.randn(len(y), 2, generator=generator), y


def trained_weights(x, y, meta, plain, weighted):
    """The weights of losses 0 to 3, after some plain steps of the head and some weighted ones."""
    torch.manual_seed(0)
    parts = Parts(
        create_backbone("identity", channels=2, input_size=0),
        lambda length: create_head("linear", length, 4),
        COUNTS,
        META_WEIGHT_NET.options | {"net_lr": 0.3},
    )
    model = build_model(parts)
    sgd = torch.optim.SGD(model.head.parameters(), lr=0.5)
    for step in range(plain + weighted):
        if step < plain:
            loss = model.head.loss(x, y)
        else:
            loss = training_step(model, StepBatch(x, y, y, (), meta), state_of(model, lr=0.5))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    return model, model.auxiliary.mlp(torch.linspace(0, 3, 4)[:, None])[:, 0]


def test_wrong_labels_lose_weight():
    """A third of the labels is wrong: large losses are theirs, and end with little weight."""
    x, y = separable([30, 30, 30, 30])
    wrong = y.clone()
    wrong[::3] = (y[::3] + 1) % 4
    model, weights = trained_weights(x, wrong, separable([10] * 4, seed=1), 60, 140)
    assert (weights.diff() < 0).all()
    shares = model.auxiliary(sample_losses(model.head, x, wrong))
    # 0.0000 to 0.004 of it over ten seeds.
    assert shares[wrong != y].mean() < 0.3 * shares[wrong == y].mean()


def test_rare_classes_gain_weight():
    """With a long tail and clean labels large losses are the tail's, and end with more weight."""
    x, y = separable([200, 30, 10, 5], noise=1.0)
    model, _ = trained_weights(x, y, separable([50] * 4, noise=1.0, seed=1), 30, 130)
    shares = model.auxiliary(sample_losses(model.head, x, y))
    of_class = [shares[y == j].mean().item() for j in range(4)]
    assert of_class[3] > 1.5 * of_class[0]  # 5 to 18 times over ten seeds


@pytest.mark.parametrize("head", ["wcdas", "am-softmax"])
def test_heads_of_any_size_have_second_derivatives(head):
    model = model_of("identity", 4, head, classes=2_100)
    x, y = torch.randn(6, 4), torch.arange(6)
    batch = StepBatch(x, MixedLabels(y, y.flip(0), 0.3), y, (), (x, y))
    before = [p.clone() for p in model.auxiliary.mlp.parameters()]
    training_step(model, batch, state_of(model)).backward()
    after = list(model.auxiliary.mlp.parameters())
    assert all(p.isfinite().all() for p in after)
    assert not all(p.equal(q) for p, q in zip(before, after, strict=True))


def test_a_transformer_has_second_derivatives_too():
    """Fused attention has first ones only."""
    torch.manual_seed(0)
    parts = Parts(
        create_backbone("vit_tiny_patch16_224", channels=1, input_size=16),
        lambda length: create_head("linear", length, 3),
        COUNTS,
        META_WEIGHT_NET.options,
    )
    model = build_model(parts)
    x, y = torch.randn(4, 1, 16, 16), torch.arange(4) % 3
    training_step(model, StepBatch(x, y, y, (), (x, y)), state_of(model)).backward()
    assert model.auxiliary.velocity.any()


def test_a_second_batch_is_needed():
    model = model_of("identity", 4)
    batch = StepBatch(torch.randn(3, 4), torch.arange(3), torch.arange(3))
    with pytest.raises(InputError, match="the stage has no second_sampler"):
        training_step(model, batch, state_of(model))


def test_bad_options_are_refused():
    backbone = create_backbone("identity", channels=4)
    with pytest.raises(InputError, match="expected hidden of at least 1, net_lr above 0"):
        build_model(Parts(backbone, None, COUNTS, META_WEIGHT_NET.options | {"hidden": 0}))


def part_of_a_step(rank, world, folder):
    """One process with its slice of the batch; leaves weights of the MLP and mean gradients."""
    torch.set_num_threads(1)
    if world > 1:
        address = f"file://{folder}/meeting"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    model = model_of("identity", 4).double()
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(3)).double()
    y, own = torch.arange(8) % 3, slice(rank * 8 // world, (rank + 1) * 8 // world)
    batch = StepBatch(x[own], y[own], y[own], (), (x.flip(0)[own], y.flip(0)[own]))
    for _ in range(3):
        model.head.zero_grad()
        training_step(model, batch, state_of(model)).backward()
    gradient = model.head.weight.grad
    if world > 1:
        dist.all_reduce(gradient)
        dist.destroy_process_group()
    state = {"net": model.auxiliary.state_dict(), "gradient": gradient / world}
    torch.save(state, folder / f"{world}-{rank}.pt")


def test_two_processes_learn_what_one_does(tmp_path, in_processes):
    in_processes(part_of_a_step, 2, tmp_path)
    part_of_a_step(0, 1, tmp_path)
    one, *two = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    for other in two:
        torch.testing.assert_close(other, one)


@pytest.mark.slow
def test_once_loaded(on_textures, loaded_top1):
    run = on_textures("meta-weight-net")
    assert loaded_top1(run) == pytest.approx(run.metrics["top1"])
    latest = max((run.path / "checkpoint").iterdir())
    state = torch.load(latest, weights_only=True)["model"]
    assert state["auxiliary.velocity"].any()
    assert state["auxiliary.velocity"].isfinite().all()

"""Classes spread over processes are as the whole head in one, to its gradients and its training."""

import copy
import math
import runpy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import wcdas
from wcdas.targets import MixedLabels

EXAMPLE = Path(__file__).parents[2] / "examples" / "sharded_head.py"
CLASSES, FEATURES, BATCH = 7, 5, 12  # of all processes together
HEADS = {
    "default": {},
    "one ρ": {"per_class": False, "init": 0.5},
    "fixed scale": {"scale": 30.0, "init": -1.0},
    "random ρ": {"init": "xavier", "scale_init": 12.0},
}


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


MANY = 40  # classes that some are drawn of
SPREAD = [torch.arange(BATCH) * 7 % MANY, torch.arange(BATCH) * 5 % MANY, torch.arange(BATCH) + 20]
X, LABELS, LOG_PRIOR = numbers(BATCH, FEATURES), torch.arange(BATCH) * 3 % CLASSES, numbers(CLASSES)
LOSSES = {
    "plain": lambda rows: {"target": LABELS[rows]},
    "smooth, with a prior": lambda rows: {
        "target": LABELS[rows],
        "label_smoothing": 0.2,
        "log_prior": LOG_PRIOR.log_softmax(0),
    },
    "mixed, weighted": lambda rows: {
        "target": MixedLabels(LABELS[rows], LABELS.flip(0)[rows], 0.3),
        "sample_weight": numbers(BATCH, seed=1).abs()[rows],
    },
    "soft": lambda rows: {"target": numbers(BATCH, CLASSES, seed=2).softmax(1)[rows]},
}


def gradients(head, loss, x):
    return torch.autograd.grad(loss, [x, *head.parameters()])


def measured(rank, world):
    """Of every head and loss: the loss and the gradients of this process's part."""
    rows = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    found = {}
    for name, options in HEADS.items():
        torch.manual_seed(7 + rank)
        head = wcdas.ShardedWCDASHead(FEATURES, CLASSES, **options).double()
        whole = head.whole()
        torch.manual_seed(1)
        for parameter in whole.parameters():
            nn.init.normal_(parameter)
        head.load_whole(whole)
        assert all(
            torch.equal(a, b)
            for a, b in zip(head.whole().parameters(), whole.parameters(), strict=True)
        )
        means = 3 + numbers(CLASSES, FEATURES, seed=3)
        imprinted = copy.deepcopy(whole)
        imprinted.imprint(means)
        head.imprint(means)
        torch.testing.assert_close(head.whole().weight, imprinted.weight)
        head.load_whole(whole)
        x = X[rows].clone().requires_grad_()
        for kind, given in LOSSES.items():
            loss = head.loss(x, **given(rows))
            found[name, kind] = loss.detach(), gradients(head, loss, x)
        logits = head(x)
        found[name, "logits"] = logits.detach(), gradients(head, logits.square().mean(), x)
    return found


def trained(rank, world):
    """A backbone and a head after ten steps."""
    torch.manual_seed(3)
    backbone = nn.Linear(FEATURES, FEATURES).double()
    whole = wcdas.WCDASHead(FEATURES, CLASSES, scale_init=10.0).double()
    if world == 1:
        head = whole
    else:
        head = wcdas.ShardedWCDASHead(FEATURES, CLASSES, scale_init=10.0).double()
        head.load_whole(whole)
        backbone = DistributedDataParallel(backbone)
    parameters = [*backbone.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.5, momentum=0.9, weight_decay=1e-2)
    rows = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    for _ in range(10):
        optimizer.zero_grad()
        head.loss(backbone(X[rows]), LABELS[rows]).backward()
        optimizer.step()
    if world > 1:
        head = head.whole()
    return [p.detach() for p in (*backbone.parameters(), *head.parameters())]


def refused(rank, world):
    """What is said of bad input, in every process."""
    head = wcdas.ShardedWCDASHead(FEATURES, CLASSES)
    with pytest.raises(ValueError, match="scale is 'big'; expected 'trainable' or a number"):
        wcdas.ShardedWCDASHead(FEATURES, CLASSES, scale="big")
    with pytest.raises(ValueError, match="label 7 is out of range; expected 0 to 6"):
        head.loss(torch.zeros(2, FEATURES), torch.tensor([0, CLASSES]))
    return True


def sampled(rank, world):
    """Three steps that draw some of the classes, and what an optimizer remembers of them."""
    torch.manual_seed(3)
    head = wcdas.ShardedWCDASHead(FEATURES, MANY, negatives=0.3).double()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9, weight_decay=0.1)
    head.step_with(optimizer)
    rows, found = slice(rank * BATCH // world, (rank + 1) * BATCH // world), []
    for step in range(3):
        optimizer.zero_grad()
        x = X[rows].clone().requires_grad_()
        loss = head.loss(x, SPREAD[step][rows])
        loss.backward()
        drawn = torch.zeros(head.shard.num_classes).index_fill_(0, head.drawing.rows, 1)
        optimizer.step()
        weight, momentum = head.shard.weight, optimizer.state[head.shard.weight]["momentum_buffer"]
        of_classes = [head.of_every_class(t.detach().double()) for t in (weight, momentum, drawn)]
        found.append((loss.detach(), x.grad / world, *of_classes))
    return found


def more_processes_than_classes(rank, world):
    """The loss and the gradients of a head of two classes."""
    torch.manual_seed(3)
    head = wcdas.ShardedWCDASHead(FEATURES, 2).double()
    rows = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    x = X[rows].clone().requires_grad_()
    loss = head.loss(x, LABELS[rows] % 2)
    to_x, *_ = gradients(head, loss, x)
    logits = head(x[:2]).detach()
    return head.sizes, loss.detach(), to_x / world, logits, head.whole().weight.detach()


def work(rank, world, folder):
    torch.set_num_threads(1)
    address = f"file://{folder}/meeting-{world}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    parts = (measured, trained, refused, sampled, more_processes_than_classes)
    found = {part.__name__: part(rank, world) for part in parts}
    dist.destroy_process_group()
    torch.save(found, folder / f"{world}-{rank}.pt")


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory, in_processes):
    """What each of two or four processes found."""
    folder, world = tmp_path_factory.mktemp("processes"), request.param
    in_processes(work, world, folder)
    return [torch.load(folder / f"{world}-{rank}.pt") for rank in range(world)]


def whole_head(options):
    head = wcdas.WCDASHead(FEATURES, CLASSES, **options).double()
    torch.manual_seed(1)
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head


def joined(parts, whole):
    """The gradients of processes, of classes or of what all have alike."""
    return parts[0] if parts[0].shape == whole.shape else torch.cat(parts)


@pytest.mark.parametrize("kind", [*LOSSES, "logits"])
@pytest.mark.parametrize("name", HEADS)
def test_values_and_gradients(name, kind, found):
    head, x = whole_head(HEADS[name]), X.clone().requires_grad_()
    if kind == "logits":
        values = head(x)
        loss = values.square().mean()
        ours = torch.cat([one["measured"][name, kind][0] for one in found])
    else:
        values = loss = head.loss(x, **LOSSES[kind](slice(None)))
        ours = torch.stack([one["measured"][name, kind][0] for one in found]).mean()
    torch.testing.assert_close(ours, values.detach())
    to_x, *to_parameters = zip(*(one["measured"][name, kind][1] for one in found), strict=True)
    expected_x, *expected = gradients(head, loss, x)
    torch.testing.assert_close(torch.cat(to_x) / len(found), expected_x)
    for parts, whole in zip(to_parameters, expected, strict=True):
        torch.testing.assert_close(joined(parts, whole), whole)


def test_training_beside_ddp(found):
    for one in found:
        torch.testing.assert_close(one["trained"], trained(0, 1), rtol=1e-10, atol=1e-10)


def test_refusals(found):
    assert all(one["refused"] for one in found)


def example(rank, world, folder):
    address = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    runpy.run_path(str(EXAMPLE))["train"](300, 150, str(folder / "head.pt"))
    dist.destroy_process_group()


def test_the_example(tmp_path, in_processes):
    in_processes(example, 2, tmp_path)
    head = wcdas.WCDASHead(64, 300, scale_init=20.0)
    head.load_state_dict(torch.load(tmp_path / "head.pt"))
    assert head.scale > 20


@pytest.mark.parametrize("group", [True, False])
def test_one_process_has_all_classes(tmp_path, group):
    """No two of them alike, in the range of a whole head's."""
    if group:
        address = f"file://{tmp_path}/meeting"
        dist.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    try:
        torch.manual_seed(5)
        head = wcdas.ShardedWCDASHead(64, 3000, init="he", start="paper")
        before = torch.rand(1)
        torch.manual_seed(5)
        assert torch.equal(before, torch.rand(1))  # the process's own sequence is left alone
        assert len(head.shard.weight.unique(dim=0)) == 3000
        assert head.shard.weight.abs().max() <= 64**-0.5
        features, labels = torch.randn(4, 64), torch.arange(4)
        torch.testing.assert_close(head.loss(features, labels), head.whole().loss(features, labels))
    finally:
        if group:
            dist.destroy_process_group()


def test_more_processes_than_classes(found):
    """The start, the loss and the gradients are those of one process, whatever the number."""
    _, loss, to_x, logits, weight = more_processes_than_classes(0, 1)
    ours = [one["more_processes_than_classes"] for one in found]
    assert ours[0][0] == [1, 1, 0, 0][: len(found)]
    torch.testing.assert_close(torch.stack([one[1] for one in ours]).mean(), loss)
    torch.testing.assert_close(torch.cat([one[2] for one in ours]), to_x)
    torch.testing.assert_close(ours[0][3], logits)
    assert all(torch.equal(one[4], weight) for one in ours)


def test_some_classes_are_drawn_alike_by_any_number_of_processes(found):
    alone = sampled(0, 1)
    for step, (loss, to_x, *of_classes) in enumerate(alone):
        ours = [one["sampled"][step] for one in found]
        torch.testing.assert_close(torch.stack([one[0] for one in ours]).mean(), loss)
        torch.testing.assert_close(torch.cat([one[1] for one in ours]), to_x)
        for one in ours:
            torch.testing.assert_close(list(one[2:]), of_classes)


def test_what_is_not_drawn_is_not_touched():
    """Neither by decay nor by the momentum of steps before; all labels are drawn."""
    steps = sampled(0, 1)
    for step, (_, _, weight, momentum, drawn) in enumerate(steps):
        drawn = drawn.bool()
        assert drawn[SPREAD[step]].all()
        assert (~drawn).any()
        if step:
            _, _, weight_before, momentum_before, _ = steps[step - 1]
            torch.testing.assert_close(weight[~drawn], weight_before[~drawn], rtol=0, atol=0)
            torch.testing.assert_close(momentum[~drawn], momentum_before[~drawn], rtol=0, atol=0)
            assert (weight[drawn] != weight_before[drawn]).any(1).all()


@pytest.mark.parametrize("target", ["labels", "mixed"])
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_step_on_drawn_classes(kind, target):
    """That of a head that has these classes alone, with −log r added where they are no labels."""
    head = wcdas.ShardedWCDASHead(FEATURES, MANY, negatives=0.4).double()
    few = {"sgd": {"lr": 0.3, "momentum": 0.9}, "adamw": {"lr": 0.3, "weight_decay": 0.2}}[kind]
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind]
    optimizer = make(head.parameters(), **few)
    head.step_with(optimizer)
    first, second = SPREAD[0], SPREAD[1]
    prior = numbers(MANY, seed=5).log_softmax(0)
    given = first if target == "labels" else MixedLabels(first, second, 0.7)
    before = head.whole()
    loss = head.loss(X, given, log_prior=prior)
    loss.backward()
    rows = head.drawing.rows
    optimizer.step()
    small = wcdas.WCDASHead(FEATURES, len(rows)).double()
    small.load_state_dict(
        before.state_dict() | {"weight": before.weight[rows], "w_rho": before.w_rho[rows]}
    )
    offset = torch.full((MANY,), -math.log(0.4), dtype=torch.float64)
    offset[first if target == "labels" else torch.cat([first, second])] = 0
    at = (torch.searchsorted(rows, part) for part in (first, second))
    alike = next(at) if target == "labels" else MixedLabels(*at, 0.7)
    other = make(small.parameters(), **few)
    expected = small.loss(X, alike, log_prior=(prior + offset)[rows])
    torch.testing.assert_close(loss, expected)
    expected.backward()
    other.step()
    after = head.whole()
    torch.testing.assert_close(after.weight[rows], small.weight)
    torch.testing.assert_close(after.w_rho[rows], small.w_rho)
    torch.testing.assert_close(after.w_scale, small.w_scale)


def test_the_mean_over_draws_is_the_sum_over_all_classes():
    """Of Σ exp z over the classes that are no label; 1,000 draws, within five standard errors."""
    head = wcdas.ShardedWCDASHead(FEATURES, MANY, negatives=0.3, scale=3.0).double()
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-9)
    head.step_with(optimizer)
    x, label = X[:1], LABELS[:1]
    others = head.whole()(x)[0].exp()
    others[label] = 0
    sums = []
    for _ in range(1000):
        loss = head.loss(x, label)  # log(1 + Σ / exp z_y)
        sums.append(torch.expm1(loss.detach()) * head.whole()(x)[0, label[0]].exp())
        head.drawing.drawn = {}
    sums = torch.stack(sums)
    error = sums.std() / math.sqrt(len(sums))
    assert abs(sums.mean() - others.sum()) < 5 * error
    assert error < 0.04 * others.sum()


def test_what_drawing_needs():
    head = wcdas.ShardedWCDASHead(FEATURES, MANY, negatives=0.3).double()
    with pytest.raises(RuntimeError, match=r"no optimizer knows of it; call head\.step_with"):
        head.loss(X, LABELS)
    head.step_with(torch.optim.SGD(head.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="class probabilities, which every class is part of"):
        head.loss(X, numbers(BATCH, MANY).softmax(1))
    with pytest.raises(ValueError, match="label_smoothing is above 0, which every class is part"):
        head.loss(X, LABELS, label_smoothing=0.1)
    head.loss(X, LABELS)
    with pytest.raises(RuntimeError, match=r"call optimizer\.step\(\) after each loss"):
        head.loss(X, LABELS)
    with torch.no_grad():
        torch.testing.assert_close(head.loss(X, LABELS), head.whole().loss(X, LABELS))
    torch.testing.assert_close(head.eval().loss(X, LABELS), head.whole().loss(X, LABELS))
    with pytest.raises(ValueError, match="negatives is 0; expected a number above 0 and at most 1"):
        wcdas.ShardedWCDASHead(FEATURES, MANY, negatives=0)
    with pytest.raises(ValueError, match="engine is 'plain', which needs all classes here"):
        wcdas.ShardedWCDASHead(FEATURES, MANY, engine="plain")

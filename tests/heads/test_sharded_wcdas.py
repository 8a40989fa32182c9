"""Classes spread over processes are as the whole head in one, to its gradients and its training."""

import copy
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
CLASSES, FEATURES, BATCH = 7, 5, 6  # of all processes together
HEADS = {
    "default": {},
    "one ρ": {"per_class": False, "init": 0.5},
    "fixed scale": {"scale": 30.0, "init": -1.0},
    "random ρ": {"init": "xavier", "scale_init": 12.0},
}


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


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
    """A backbone and a head after five steps."""
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
    for _ in range(5):
        optimizer.zero_grad()
        head.loss(backbone(X[rows]), LABELS[rows]).backward()
        optimizer.step()
    if world > 1:
        head = head.whole()
    return [p.detach() for p in (*backbone.parameters(), *head.parameters())]


def refused(rank, world):
    """What is said of bad input, in every process."""
    head = wcdas.ShardedWCDASHead(FEATURES, CLASSES)
    too_few = f"num_classes is {world - 1}; expected at least one for each of {world} processes"
    with pytest.raises(ValueError, match=too_few):
        wcdas.ShardedWCDASHead(FEATURES, world - 1)
    with pytest.raises(ValueError, match="scale is 'big'; expected 'trainable' or a number"):
        wcdas.ShardedWCDASHead(FEATURES, CLASSES, scale="big")
    with pytest.raises(ValueError, match="label 7 is out of range; expected 0 to 6"):
        head.loss(torch.zeros(2, FEATURES), torch.tensor([0, CLASSES]))
    return True


def work(rank, world, folder):
    torch.set_num_threads(1)
    address = f"file://{folder}/meeting-{world}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    found = {part.__name__: part(rank, world) for part in (measured, trained, refused)}
    dist.destroy_process_group()
    torch.save(found, folder / f"{world}-{rank}.pt")


@pytest.fixture(scope="module", params=[2, 3])
def found(request, tmp_path_factory, in_processes):
    """What each of two or three processes found."""
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
        torch.testing.assert_close(one["trained"], trained(0, 1))


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


def test_without_processes():
    with pytest.raises(RuntimeError, match="no process group to spread the classes over; call"):
        wcdas.ShardedWCDASHead(4, 10)


def test_classes_start_as_those_of_one_head(tmp_path):
    """The same for any number of processes but for the draw; no two classes alike."""
    address = f"file://{tmp_path}/meeting"
    dist.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    try:
        torch.manual_seed(5)
        head = wcdas.ShardedWCDASHead(64, 50, init="he")
        before = torch.rand(1)
        torch.manual_seed(5)
        assert torch.equal(before, torch.rand(1))  # the process's own sequence is left alone
        assert len(head.shard.weight.unique(dim=0)) == 50
        assert head.shard.weight.abs().max() <= 64**-0.5
        features, labels = torch.randn(4, 64), torch.arange(4)
        torch.testing.assert_close(head.loss(features, labels), head.whole().loss(features, labels))
    finally:
        dist.destroy_process_group()

"""The contrastive methods from end to end, and in several processes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import wcdas
from wcdas.backbones.base import Backbone
from wcdas.data import open_dataset
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.methods import METHODS
from wcdas.methods.hybrid_contrastive import HYBRID_CONTRASTIVE, HYBRID_CONTRASTIVE_WCDAS
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.methods.paco import PACO, PACO_WCDAS
from wcdas.methods.proco import PROCO, PROCO_WCDAS
from wcdas.run import loop

CONTRASTIVE = {
    "paco": PACO,
    "paco-wcdas": PACO_WCDAS,
    "hybrid-contrastive": HYBRID_CONTRASTIVE,
    "hybrid-contrastive-wcdas": HYBRID_CONTRASTIVE_WCDAS,
    "proco": PROCO,
    "proco-wcdas": PROCO_WCDAS,
}


def train(method, out, epochs=2, data=None, resume=False, **settings):
    given = {"stages.representation.epochs": epochs, "evaluate_every": 99} | settings
    if data is None:
        given["backbone.name"] = "resnet8"
    if resume:
        return wcdas.train(out=out, resume=True, device="cpu", report=False)
    return wcdas.train(data, method, settings=given, out=out, device="cpu", report=False)


def tensors(run):
    with safe_open(run.path / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_predicts_the_same_once_loaded(name, on_textures, loaded_top1):
    run = on_textures(name)
    assert run.model.info.prior == "uniform"
    assert all(key.startswith(("backbone.", "head.")) for key in tensors(run))
    newest = max((run.path / "checkpoint").glob("*.pt"))
    kept = torch.load(newest, weights_only=True)["model"]
    assert any(key.startswith("auxiliary.") for key in kept)
    loaded = wcdas.load(run.path, device="cpu")
    assert loaded.classifier.auxiliary is None
    same = {key: kept[key] for key in tensors(run)}
    torch.testing.assert_close(loaded.classifier.state_dict(), same, rtol=0, atol=0)
    assert loaded_top1(run) == pytest.approx(run.metrics["top1"])


class StoppedError(Exception):
    """A crash in the middle of a run."""


def crashing(method, after):
    """The method, up to a crash in one of its steps."""
    steps = []

    def training_step(model, batch, state):
        if len(steps) == after:
            raise StoppedError
        steps.append(state.progress)
        return method.training_step(model, batch, state)

    return replace(method, training_step=training_step)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("paco", {"options.queue": 50}),
        ("paco-wcdas", {"options.queue": 50}),
        ("hybrid-contrastive", {"options.contrast": "prototypical"}),
        ("proco", {"stages.representation.accumulate": 2, "stages.representation.ema": 0.9}),
        ("proco-wcdas", {"stages.representation.mixup": 0.4}),
    ],
)
def test_crashed_and_resumed(name, settings, tmp_path, monkeypatch):
    """Queue, key encoder, prototypes, distributions and progress are where they were, inside an
    epoch."""
    whole = train(name, tmp_path / "whole", **settings)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setitem(METHODS, name, crashing(CONTRASTIVE[name], after=15))
    with pytest.raises(StoppedError):
        train(name, tmp_path / "crashed", **settings)
    monkeypatch.setitem(METHODS, name, CONTRASTIVE[name])
    resumed = train(name, tmp_path / "crashed", resume=True)
    torch.testing.assert_close(tensors(resumed), tensors(whole), rtol=0, atol=0)
    logs = [
        [json.loads(line)["loss"] for line in (run.path / "log.jsonl").read_text().splitlines()]
        for run in (resumed, whole)
    ]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", ["paco", "hybrid-contrastive", "proco"])
def test_half_precision(name, tmp_path):
    run = train(name, tmp_path / "run", epochs=1, amp="bf16")
    assert all(value.isfinite().all() for value in tensors(run).values())


@pytest.mark.parametrize("name", ["paco", "hybrid-contrastive"])
@pytest.mark.parametrize("mixing", ["mixup", "cutmix"])
def test_mixed_images_are_refused(name, mixing, tmp_path):
    message = rf"stage representation: {name} needs images of one class there; set mixup"
    with pytest.raises(InputError, match=message):
        train(name, tmp_path / "run", **{f"stages.representation.{mixing}": 0.4})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["paco", "hybrid-contrastive", "proco"])
def test_feature_vectors_are_refused(name, tmp_path):
    split = open_dataset("digits-lt").train
    np.save(tmp_path / "pixels.npy", split.pixels.flatten(1).float().numpy() / 255)
    np.save(tmp_path / "pixels_labels.npy", split.labels.numpy())
    message = f"{name} trains the features, but here they are given; take images"
    with pytest.raises(InputError, match=message):
        train(name, tmp_path / "run", data=tmp_path / "pixels.npy")
    assert not (tmp_path / "run").exists()


class Flat(Backbone):
    """A backbone without batch norm, so that processes can agree to the last bit but rounding."""

    num_features = 8

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        return torch.tanh(self.layer(x.flatten(1)))


class Step(nn.Module):
    def __init__(self, name):
        super().__init__()
        method = CONTRASTIVE[name]
        torch.manual_seed(0)
        options = dict(method.options) | {"projection": 16}
        options |= {"queue": 10} if "queue" in options else {}
        counts = torch.tensor([30, 20, 10])
        head = method.defaults["head"]["name"]
        parts = Parts(Flat(), lambda length: create_head(head, length, 3), counts, options)
        self.model = method.build_model(parts).double()
        self.method = method
        self.state = StepState(
            "representation", counts, options, self.model.features, self.model.head.loss, 0.6
        )

    def forward(self, batch):
        return self.method.training_step(self.model, batch, self.state)


def steps(name, rank, world):
    """Two steps of a process on its slices; what is left of the parameters and the buffers."""
    step = Step(name)
    parallel = DistributedDataParallel(step, find_unused_parameters=True) if world > 1 else step
    optimizer = torch.optim.SGD([p for p in step.parameters() if p.requires_grad], lr=0.5)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        images = torch.randn(4, 8, 1, 4, 4, generator=generator, dtype=torch.float64)
        labels = torch.randint(3, (2, 8), generator=generator)
        own = slice(rank * 8 // world, (rank + 1) * 8 // world)
        inputs, second, *views = images[:, own]
        first_labels, second_labels = labels[:, own]
        views = tuple(views[: len(step.method.views)])
        batch = StepBatch(inputs, first_labels, first_labels, views, (second, second_labels))
        optimizer.zero_grad()
        parallel(batch).backward()
        optimizer.step()
    return {key: value.clone() for key, value in step.model.state_dict().items()}


def one_of_two(rank, world, name, folder):
    torch.set_num_threads(1)
    address = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    torch.save(steps(name, rank, world), folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["paco", "paco-wcdas", "hybrid-contrastive", "proco"])
def test_two_processes_end_where_one_does(name, tmp_path, in_processes):
    """The contrast is of the whole batch, queue and distributions are of the samples of both."""
    in_processes(one_of_two, 2, name, tmp_path)
    for rank in range(2):
        left = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(left, steps(name, 0, 1), rtol=1e-9, atol=1e-12)

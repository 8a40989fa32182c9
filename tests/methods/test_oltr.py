"""OLTR: attention and centroid loss by hand, what the second stage begins with, a whole run."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from wcdas.backbones import create_backbone
from wcdas.heads import create_head
from wcdas.methods import METHODS
from wcdas.methods.method import Parts, StageStart, StepBatch, StepState
from wcdas.methods.oltr import (
    OLTR,
    AttentiveBackbone,
    ModulatedAttention,
    begin_stage,
    build_model,
    centroid_loss,
    training_step,
)
from wcdas.targets import MixedLabels

COUNTS = torch.tensor([5, 3, 2])


def softmax(values):
    e = np.exp(values - values.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_attention_by_hand():
    """f + MA(f) ⊗ SA(f), place by place."""
    torch.manual_seed(0)
    layer = ModulatedAttention(6).double()
    torch.nn.init.normal_(layer.back.weight)
    f = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    state = {name: v.numpy().squeeze() for name, v in layer.state_dict().items()}
    for image, out in zip(f.numpy(), layer(f).detach().numpy(), strict=True):
        places = image.reshape(6, 12).T
        query, key, value = (
            places @ state[f"{name}.weight"].T + state[f"{name}.bias"]
            for name in ("query", "key", "value")
        )
        attended = softmax(query @ key.T) @ value @ state["back.weight"].T
        weight = softmax(places @ state["place.weight"] + state["place.bias"])
        expected = places + weight[:, None] * attended
        np.testing.assert_allclose(out.reshape(6, 12).T, expected, rtol=1e-10)


def test_attention_begins_as_the_identity():
    f = torch.randn(2, 6, 3, 4)
    assert ModulatedAttention(6)(f).equal(f)


def loss_by_hand(x, memory, labels):
    own = np.mean([((a - memory[y]) ** 2).sum() / 2 for a, y in zip(x, labels, strict=True)])
    others = sum(
        ((a - memory[j]) ** 2).sum()
        for a, y in zip(x, labels, strict=True)
        for j in range(len(memory))
        if j != y
    )
    return own + 0.01 * max(0, 10 - others / (len(x) * len(memory)))


@pytest.mark.parametrize("size", [0.5, 5.0])  # within the margin and beyond
def test_centroid_loss_by_hand(size):
    generator = torch.Generator().manual_seed(0)
    x, memory = (size * torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (8, 3))
    first, second = torch.arange(8) % 3, torch.arange(8) % 2
    expected = loss_by_hand(x.numpy(), memory.numpy(), first.numpy())
    assert centroid_loss(x, memory, first).item() == pytest.approx(expected)
    mixed = centroid_loss(x, memory, MixedLabels(first, second, 0.3))
    if size > 1:  # where the margin is kept the loss is linear in the labels
        other = loss_by_hand(x.numpy(), memory.numpy(), second.numpy())
        assert mixed.item() == pytest.approx(0.3 * expected + 0.7 * other)
    whole = centroid_loss(x, memory, MixedLabels(first, second, torch.ones(8).double()))
    assert whole.item() == pytest.approx(expected)


def parts_of(backbone, channels):
    torch.manual_seed(0)
    return Parts(
        create_backbone(backbone, channels=channels, input_size=8),
        lambda length: create_head("linear", length, 3),
        COUNTS,
        OLTR.options,
    )


def start_of(stage, features, labels):
    return StageStart(stage, COUNTS, OLTR.options, lambda: (features, labels), lambda: None)


def test_gradients_reach_every_part_in_the_second_stage():
    model = build_model(parts_of("resnet32", 1))
    x, y = torch.randn(6, 1, 8, 8), torch.arange(6) % 3
    state = StepState("classifier", COUNTS, OLTR.options, model.features, model.head.loss)
    training_step(model, StepBatch(x, y, y), state).backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None}
    assert unused == {
        "head.weight",
        "head.memory",
        *(f"head.selector.{kind}" for kind in ("weight", "bias")),
        *(f"backbone.attention.{name}" for name, _ in model.backbone.attention.named_parameters()),
    }
    with torch.no_grad():
        begin_stage(model, start_of("classifier", model.features(x), y))
    torch.nn.init.normal_(model.backbone.attention.back.weight)
    training_step(model, StepBatch(x, y, y), state).backward()
    still = {n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    # a bias that is the same for all places cancels in a softmax
    assert still <= {"backbone.attention.place.bias", "backbone.attention.key.bias"}


def test_features_need_no_attention():
    model = build_model(parts_of("identity", 4))
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    begin_stage(model, start_of("representation", x, y))
    assert model(x).equal(model.head.hallucinator(x))
    begin_stage(model, start_of("classifier", x, y))
    assert not model(x).equal(model.head.hallucinator(x))


def test_tokens_of_a_transformer_stay_as_they_are():
    """Only a map (B, num_features, H, W) gets attention."""

    class Tokens(type(create_backbone("identity", channels=4))):
        def forward_map(self, x):
            return x[:, None].expand(-1, 3, -1)

        def pool(self, feature_map):
            return feature_map.mean(1)

    backbone = AttentiveBackbone(Tokens(4))
    backbone.attends.turn_on()
    torch.nn.init.normal_(backbone.attention.back.weight)
    x = torch.randn(2, 4)
    torch.testing.assert_close(backbone(x), x)


def test_a_whole_run(on_textures, monkeypatch, loaded_top1):
    begun = {}

    def spy(model, start):
        begin_stage(model, start)
        if start.stage == "classifier":
            begun["features"], begun["labels"] = start.features()  # of the backbone as it is now
            begun["memory"] = model.head.memory.clone()
            begun["start"] = model.backbone.attends.on, model.head.memory_is_filled.on

    monkeypatch.setitem(METHODS, "watched", replace(OLTR, begin_stage=spy))
    run = on_textures("watched")
    # attention begins as the identity, so that the features are still those of the first stage
    features, labels = begun["features"].numpy().astype(np.float64), begun["labels"].numpy()
    means = np.array([features[labels == j].mean(0) for j in range(3)])
    np.testing.assert_allclose(begun["memory"].numpy(), means, rtol=1e-5, atol=1e-6)
    assert begun["start"] == (True, True)

    assert run.model.info.prior == "uniform"
    assert loaded_top1(run) == pytest.approx(run.metrics["top1"])
    model = run.model.classifier
    assert model.head.memory_is_filled.on
    assert model.backbone.attends.on
    assert not torch.allclose(model.head.memory.detach().cpu(), begun["memory"], atol=1e-3)
    assert model.backbone.attention.back.weight.abs().max() > 0

"""The hybrid network: its prototypes, its curriculum, its step, and what it refuses."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import SupConLoss

from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.methods.hybrid_contrastive import (
    HYBRID_CONTRASTIVE,
    HYBRID_CONTRASTIVE_WCDAS,
    PrototypicalContrastiveLoss,
    contrast_weight,
)
from wcdas.methods.method import Parts, StepBatch, StepState

COUNTS = torch.tensor([60, 25, 10, 5])


def test_the_curriculum():
    """From 1 to 0 on a parabola, as of 200 epochs."""
    weights = [contrast_weight(epoch / 200) for epoch in range(201)]
    np.testing.assert_allclose(weights, [1 - (epoch / 200) ** 2 for epoch in range(201)])
    assert weights[0] == 1
    assert weights[100] == 0.75
    assert weights[200] == 0


def by_hand(z, p, labels, temperature, each):
    """The paper's loss, sample by sample; the denominator leaves the own class out."""
    z, p = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (z, p))
    total = 0.0
    for i, own in enumerate(labels):
        similarity = [math.exp(z[i] @ row / temperature) for row in p]
        of_class = [sum(similarity[k : k + each]) for k in range(0, len(p), each)]
        total -= math.log(of_class[own] / (sum(of_class) - of_class[own]))
    return total / len(labels)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("each", [1, 3], ids=["one prototype", "three"])
def test_the_prototypical_loss_by_hand(temperature, each):
    torch.manual_seed(0)
    loss = PrototypicalContrastiveLoss(6, 4, temperature, each).double()
    z, labels = torch.randn(9, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 3, 2, 1, 0, 0])
    p = loss.prototypes.detach().numpy()
    assert len(p) == 4 * each
    expected = by_hand(z.numpy(), p, labels.numpy(), temperature, each)
    assert loss(z, labels).item() == pytest.approx(expected, rel=1e-12)


def test_prototypes_learn_where_their_class_is():
    """Drawn by gradients alone, every prototype ends nearest to its own class."""
    torch.manual_seed(0)
    z, labels = torch.eye(6)[:4].repeat(5, 1), torch.arange(4).repeat(5)
    loss = PrototypicalContrastiveLoss(6, 4)
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        loss(z + 0.1 * torch.randn_like(z), labels).backward()
        optimizer.step()
    cosine = F.cosine_similarity(z[:4, None], loss.prototypes, dim=2)
    assert cosine.argmax(1).tolist() == [0, 1, 2, 3]


def test_gradcheck():
    loss = PrototypicalContrastiveLoss(3, 4, prototypes=2).double()
    z = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 0])
    assert torch.autograd.gradcheck(lambda z, _: loss(z, labels), (z, loss.prototypes))


def make_model(method=HYBRID_CONTRASTIVE, counts=COUNTS, **options):
    torch.manual_seed(0)
    given = dict(method.options) | {"projection": 8} | options
    parts = Parts(
        create_backbone("resnet32", channels=1),
        lambda length: create_head(method.defaults["head"]["name"], length, len(counts)),
        counts,
        given,
    )
    model = method.build_model(parts).double().train()

    def loss(features, target):
        return model.head.loss(features, target)

    return model, StepState("representation", counts, given, model.features, loss)


def make_batch(count=6):
    generator = torch.Generator().manual_seed(0)
    images, view, second = torch.randn(3, count, 1, 8, 8, generator=generator, dtype=torch.float64)
    labels, second_labels = torch.randint(4, (2, count), generator=generator)
    return StepBatch(images, labels, labels, (view,), (second, second_labels))


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("contrast", ["supervised", "prototypical"])
@pytest.mark.parametrize("method", [HYBRID_CONTRASTIVE, HYBRID_CONTRASTIVE_WCDAS])
def test_a_step_from_its_parts(method, contrast, progress):
    model, state = make_model(method, contrast=contrast)
    batch = make_batch()
    with torch.no_grad():
        both = torch.cat((model.features(batch.inputs), model.features(batch.views[0])))
        embeddings = model.auxiliary.projection(both)
        labels = batch.labels.repeat(2)
        if contrast == "supervised":
            expected = SupConLoss(0.1)(embeddings, labels).item()
        else:
            p = model.auxiliary.loss.prototypes.numpy()
            expected = by_hand(embeddings.numpy(), p, labels.numpy(), 0.1, 1)
        classified = F.cross_entropy(model(batch.second[0]), batch.second[1]).item()
    state.progress = progress
    expected = (1 - progress**2) * expected + progress**2 * classified
    value = method.training_step(model, batch, state)
    assert value.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("contrast", ["supervised", "prototypical"])
def test_gradients_reach_everything(contrast):
    model, state = make_model(contrast=contrast)
    state.progress = 0.5
    HYBRID_CONTRASTIVE.training_step(model, make_batch(), state).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_a_stage_without_views_is_an_ordinary_one():
    model, state = make_model()
    batch = make_batch()._replace(views=(), second=None)
    expected = F.cross_entropy(model(batch.inputs), batch.labels)
    torch.testing.assert_close(HYBRID_CONTRASTIVE.training_step(model, batch, state), expected)


def test_the_second_sampler_is_needed():
    model, state = make_model()
    with pytest.raises(InputError, match=r"stages\.representation\.second_sampler is empty"):
        HYBRID_CONTRASTIVE.training_step(model, make_batch()._replace(second=None), state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contrast": "prototype"}, "unknown contrast 'prototype'; did you mean 'prototypical'"),
        ({"temperature": 0.0}, "options.temperature is 0.0; expected a number above 0"),
        ({"prototypes": 0}, "options.prototypes is 0; expected a number above 0"),
        ({"projection": 0}, "options.projection is 0; expected a number above 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        make_model(**options)


def test_prototypes_need_two_classes():
    with pytest.raises(InputError, match="prototypes of one class"):
        make_model(counts=torch.tensor([5]), contrast="prototypical")

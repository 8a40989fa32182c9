"""Gaussian affinity as a method: the loss of a step by hand, the fitted scale, a whole run."""

import itertools

import numpy as np
import pytest
import torch

from wcdas.backbones import create_backbone
from wcdas.heads import create_head
from wcdas.losses import AffinityLoss
from wcdas.methods.classifier import Classifier
from wcdas.methods.gaussian_affinity import training_step
from wcdas.methods.method import StepBatch, StepState

COUNTS = torch.tensor([5, 3, 2])


def model_of(head, **options):
    torch.manual_seed(0)
    backbone = create_backbone("identity", channels=4, input_size=0)
    return Classifier(backbone, create_head(head, 4, 3, **options)).double()


def step(model, x, y):
    def loss(features, target):
        return AffinityLoss(margin=0.75)(model.head(features, target), target)

    state = StepState("representation", COUNTS, {"diversity": 2.0}, model.features, loss)
    return training_step(model, StepBatch(x, y, y), state)


@pytest.mark.parametrize("prototypes", [1, 2])
def test_the_loss_of_a_step_by_hand(prototypes):
    model = model_of("gaussian-affinity", feature_scale=1.0, prototypes=prototypes)
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.arange(8) % 3
    w = model.head.prototypes.detach().numpy()
    d = np.exp(-((x.numpy()[:, None, None] - w) ** 2).sum(3) / 10).max(2)
    L_mm = [
        sum(max(0, 0.75 + d[i, j] - d[i, y[i]]) for j in range(3) if j != y[i]) for i in range(8)
    ]
    pairs = [((a - b) ** 2).sum() for a, b in itertools.combinations(w.reshape(-1, 4), 2)]
    R = np.mean((np.array(pairs) - np.mean(pairs)) ** 2)
    assert step(model, x, y).item() == pytest.approx(np.mean(L_mm) + 2 * R)


def test_the_first_batch_sets_the_scale():
    model = model_of("gaussian-affinity")
    y = torch.arange(8) % 3
    first, second = 30 * torch.randn(8, 4).double(), torch.randn(8, 4).double()
    step(model, first, y)
    scaled = model.head.feature_scale * first
    assert scaled.square().sum(1).mean().item() == pytest.approx(10 * 256 / 90)
    before = model.head.feature_scale.clone()
    step(model, second, y)
    assert model.head.feature_scale.equal(before)


def test_once_loaded(on_textures, loaded_top1):
    run = on_textures("gaussian-affinity")
    assert loaded_top1(run) == pytest.approx(run.metrics["top1"])
    assert 0 < run.model.classifier.head.feature_scale < 1  # as in training

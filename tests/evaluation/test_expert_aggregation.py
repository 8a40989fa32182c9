"""Experts for three class mixes, weighed on images of a mix that nobody told them."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from wcdas.evaluation.expert_aggregation import aggregate_experts, prediction_stability

CLASSES = 6
HEAD_HEAVY = torch.tensor([64.0, 16.0, 4.0, 1.0, 0.25, 0.0625])
PRIORS = torch.stack([HEAD_HEAVY, torch.ones(CLASSES), HEAD_HEAVY.flip(0)]).log()


def test_stability_is_the_mean_cosine_of_predictions():
    random = np.random.default_rng(0)
    z1, z2 = random.normal(size=(2, 3, 5, 4))
    w = np.array([0.2, 0.3, 0.5])
    cosines = []
    for a, b in zip(np.einsum("e,ebc->bc", w, z1), np.einsum("e,ebc->bc", w, z2), strict=True):
        p, q = np.exp(a) / np.exp(a).sum(), np.exp(b) / np.exp(b).sum()
        cosines.append(p @ q / np.linalg.norm(p) / np.linalg.norm(q))
    value = prediction_stability(*map(torch.tensor, (w, z1, z2)))
    assert value.item() == pytest.approx(np.mean(cosines), rel=1e-12)


def views(mix: Tensor, epochs: int = 5) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
    """Points on a line about the means 0, 1, … of their classes, seen twice with noise.

    The experts are the three Bayes classifiers for a head-heavy, an even and a tail-heavy mix.
    """
    random = torch.Generator().manual_seed(0)
    labels = torch.multinomial(mix, 1280, replacement=True, generator=random)
    points = labels + 0.5 * torch.randn(1280, generator=random)

    def logits(x: Tensor) -> Tensor:
        distance = x[:, None] - torch.arange(CLASSES)
        return PRIORS[:, None, :] - distance**2 / (2 * 0.5**2)

    for _ in range(epochs):
        seen = (points + 0.3 * torch.randn(2, 1280, generator=random)).split(128, dim=1)
        yield ((logits(a), logits(b)) for a, b in seen)


def test_the_expert_of_the_mix_at_hand_gains_weight():
    on_tail = aggregate_experts(views(HEAD_HEAVY.flip(0)))
    on_head = aggregate_experts(views(HEAD_HEAVY))
    # 0.45 to 0.49, and 0.21 to 0.23, over ten seeds.
    assert on_tail[2] > 0.4 > 1 / 3 > on_tail[0]
    assert on_head[0] > 0.4 > 1 / 3 > on_head[2]
    for weights in (on_tail, on_head):
        assert weights.sum().item() == pytest.approx(1)
        assert not weights.requires_grad


def test_the_more_it_learns_the_surer_it_is_until_a_weight_is_low():
    tail = HEAD_HEAVY.flip(0)
    short, long = aggregate_experts(views(tail, 1)), aggregate_experts(views(tail, 5))
    assert 1 / 3 < short[2] < long[2]
    stopped = aggregate_experts(views(tail, 5), lowest=0.33)
    assert stopped.equal(short)


def test_one_step_follows_the_slope():
    (batch,) = (next(epoch) for epoch in views(HEAD_HEAVY.flip(0), 1))
    w = torch.full((3,), 1 / 3, requires_grad=True)
    prediction_stability(w.softmax(0), *batch).backward()
    moved = 1 / 3 + 0.1 * 1.9 * (w.grad - 5e-4 / 3)  # Nesterov's first step is 1 + momentum
    torch.testing.assert_close(aggregate_experts([[batch]]), moved.softmax(0))


def test_no_images():
    with pytest.raises(ValueError, match="no images to learn"):
        aggregate_experts([])

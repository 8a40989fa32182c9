import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from wcdas.losses import AffinityLoss
from wcdas.losses.affinity import diversity


@pytest.fixture
def affinities():
    generator = torch.Generator().manual_seed(4)
    return torch.rand(8, 5, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("margin", [0.1, 0.75, 1.0])
def test_is_the_multi_class_hinge_loss_of_torch(margin, affinities, labels):
    """torch divides the sum by the number of classes."""
    value = AffinityLoss(margin, reduction="none")(affinities.log(), labels)
    expected = 5 * F.multi_margin_loss(affinities, labels, margin=margin, reduction="none")
    torch.testing.assert_close(value, expected)


def test_a_wide_margin_costs_nothing_and_has_no_slope():
    z = torch.tensor([[0.9, 0.1, 0.05]]).log().requires_grad_()
    loss = AffinityLoss(0.75)(z, torch.tensor([0]))
    loss.backward()
    assert loss == 0
    assert (z.grad == 0).all()


def test_soft_targets_weight_the_losses_of_the_labels(affinities, soft_targets):
    loss = AffinityLoss(reduction="none")
    each = torch.stack(
        [loss(affinities.log(), torch.full((8,), y, dtype=torch.int64)) for y in range(5)], 1
    )
    torch.testing.assert_close(loss(affinities.log(), soft_targets), (soft_targets * each).sum(1))


@pytest.mark.parametrize("soft", [False, True])
def test_gradients(soft, affinities, labels, soft_targets):
    target = soft_targets if soft else labels
    loss = AffinityLoss()
    z = affinities.log().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, target), z)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype, affinities, labels):
    half = affinities.log().to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = AffinityLoss()(half, labels)
    assert value.dtype == torch.float32
    assert value.equal(AffinityLoss()(half.float(), labels))


def test_diversity_pair_by_pair():
    w = np.random.default_rng(0).normal(size=(6, 4))
    distances = [((a - b) ** 2).sum() for a, b in itertools.combinations(w, 2)]
    mu = 2 / (6**2 - 6) * sum(distances)
    expected = 2 / (6**2 - 6) * sum((d - mu) ** 2 for d in distances)
    assert diversity(torch.from_numpy(w)).item() == pytest.approx(expected)


def test_diversity_of_a_simplex_is_nothing():
    """The corners of a simplex are equally far apart; moving one of them has a cost."""
    corners = 3 * torch.eye(4, dtype=torch.float64)
    assert diversity(corners).item() == pytest.approx(0, abs=1e-20)
    moved = corners.clone().requires_grad_()
    with torch.no_grad():
        moved[0] *= 2
    value = diversity(moved)
    value.backward()
    assert value > 1
    assert (moved.grad[0] != 0).any()


def test_bad_options():
    with pytest.raises(ValueError, match=r"margin is 2; expected a number above 0 and at most 1"):
        AffinityLoss(margin=2)
    with pytest.raises(ValueError, match="unknown reduction 'avg'"):
        AffinityLoss(reduction="avg")

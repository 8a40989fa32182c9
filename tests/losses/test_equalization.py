import numpy as np
import pytest
import torch
from torch.nn import functional as F

from wcdas.losses import EqualizationLoss

RARE = torch.tensor([False, False, True, True, True])


def test_rare_classes_are_those_below_the_threshold():
    assert EqualizationLoss([90, 6, 4], threshold=0.06).is_rare.tolist() == [False, False, True]


def test_rare_by_default_is_below_half_a_fair_share():
    assert EqualizationLoss([60, 17, 16, 7]).is_rare.tolist() == [False, False, False, True]
    assert EqualizationLoss([51] + [1] * 99).is_rare.tolist() == [False] + [False] * 99
    assert EqualizationLoss([200] + [1] * 99).is_rare.tolist() == [False] + [True] * 99


def test_definition(class_counts, logits, labels):
    loss = EqualizationLoss(class_counts, threshold=0.1, gamma=0.6, reduction="none")
    torch.manual_seed(5)
    value = loss(logits, labels)
    torch.manual_seed(5)
    beta = (torch.rand_like(logits) < 0.6).numpy()
    y = np.eye(5)[labels]
    w = 1 - beta * RARE.numpy() * (1 - y)
    e = np.exp(logits.numpy())
    expected = -np.log((y * e).sum(axis=1) / (w * e).sum(axis=1))
    torch.testing.assert_close(value, torch.from_numpy(expected))
    assert 0 < w.mean() < 1


def test_soft_targets_keep_their_classes(class_counts, logits):
    t = torch.zeros(8, 5, dtype=torch.float64)
    t[:, 0], t[:, 3] = 0.7, 0.3
    loss = EqualizationLoss(class_counts, threshold=0.1, gamma=1.0, reduction="none")
    kept = logits[:, [0, 1, 3]]
    expected = F.cross_entropy(kept, t[:, [0, 1, 3]], reduction="none")
    torch.testing.assert_close(loss(logits, t), expected)


def test_always_dropping_spares_rare_classes(class_counts, logits, labels):
    z = logits.clone().requires_grad_()
    EqualizationLoss(class_counts, threshold=0.1, gamma=1.0)(z, labels).backward()
    spared = RARE & (F.one_hot(labels, 5) == 0)
    assert (z.grad[spared] == 0).all()
    unsaturated = (labels < 2)[:, None] & ~RARE
    assert (z.grad[unsaturated] != 0).all()


def test_never_dropping_is_cross_entropy(class_counts, logits, labels):
    value = EqualizationLoss(class_counts, threshold=0.1, gamma=0.0)(logits, labels)
    torch.testing.assert_close(value, F.cross_entropy(logits, labels))


def test_evaluation_drops_nothing(class_counts, logits, labels):
    loss = EqualizationLoss(class_counts, threshold=0.1, gamma=1.0)
    assert loss(logits, labels) < F.cross_entropy(logits, labels)
    torch.testing.assert_close(loss.eval()(logits, labels), F.cross_entropy(logits, labels))


def test_share_dropped_is_gamma(class_counts):
    z = torch.zeros(20_000, 5, requires_grad=True)
    loss = EqualizationLoss(class_counts, threshold=0.1, gamma=0.9, reduction="sum")
    loss(z, torch.zeros(20_000, dtype=torch.int64)).backward()
    share = (z.grad == 0).double().mean(dim=0)
    torch.testing.assert_close(share, 0.9 * RARE.double(), atol=0.01, rtol=0)


@pytest.mark.parametrize("option", ["threshold", "gamma"])
def test_bad_options(option, class_counts):
    with pytest.raises(ValueError, match=f"{option} is 1.5; expected a number from 0 to 1"):
        EqualizationLoss(class_counts, **{option: 1.5})

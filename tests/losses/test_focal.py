import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torchvision.ops import sigmoid_focal_loss

from wcdas.losses import FocalLoss


@pytest.mark.parametrize("alpha", [None, 0.25, 0.9])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_sigmoid_form_is_torchvisions(gamma, alpha, logits, labels):
    loss = FocalLoss(gamma, alpha, activation="sigmoid", reduction="none")
    one_hot = F.one_hot(labels, 5).double()
    expected = sigmoid_focal_loss(
        logits, one_hot, alpha=-1 if alpha is None else alpha, gamma=gamma
    ).sum(dim=1)
    torch.testing.assert_close(loss(logits, labels), expected, rtol=1e-6, atol=1e-6)


def test_without_fading_is_cross_entropy(logits, labels, soft_targets):
    for target in (labels, soft_targets):
        torch.testing.assert_close(
            FocalLoss(gamma=0.0)(logits, target), F.cross_entropy(logits, target)
        )


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 5.0])
def test_softmax_form(gamma, logits, labels, soft_targets):
    z = logits.numpy()
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    terms = -((1 - p) ** gamma) * np.log(p)
    loss = FocalLoss(gamma, reduction="none")
    expected = torch.from_numpy(terms[np.arange(8), labels.numpy()])
    torch.testing.assert_close(loss(logits, labels), expected)
    expected = torch.from_numpy((soft_targets.numpy() * terms).sum(axis=1))
    torch.testing.assert_close(loss(logits, soft_targets), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.5, 1.0, 2.0])
def test_gradient_is_finite_at_certainty(gamma, activation, dtype):
    loss = FocalLoss(gamma, activation=activation)
    for extreme in (40.0, 100.0, 1e4, -1e4):
        z = torch.tensor([[extreme, 0.0, -extreme]], dtype=dtype, requires_grad=True)
        loss(z, torch.tensor([0])).backward()
        assert z.grad.isfinite().all()


def test_gradient_vanishes_for_a_certain_label_and_stays_for_a_missed_one():
    z = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    FocalLoss(gamma=0.5, reduction="sum")(z, torch.tensor([0, 0])).backward()
    torch.testing.assert_close(z.grad, torch.tensor([[0.0, 0.0], [-1.0, 1.0]]))


def test_well_classified_samples_keep_their_precision():
    log_odds = 12.0
    p_rest = 1 / (1 + np.exp(log_odds))
    value = FocalLoss(activation="sigmoid")(torch.tensor([[log_odds]]), torch.tensor([0]))
    assert value.item() == pytest.approx(p_rest**2 * -np.log1p(-p_rest), rel=1e-4)


def test_bad_options():
    with pytest.raises(ValueError, match="gamma is -1; expected a number of at least 0"):
        FocalLoss(gamma=-1)
    with pytest.raises(ValueError, match="unknown activation 'sigmod'; did you mean 'sigmoid'"):
        FocalLoss(activation="sigmod")
    with pytest.raises(ValueError, match="use activation='sigmoid'"):
        FocalLoss(alpha=0.25)
    with pytest.raises(ValueError, match=r"alpha is 1\.5; expected a number from 0 to 1"):
        FocalLoss(alpha=1.5, activation="sigmoid")

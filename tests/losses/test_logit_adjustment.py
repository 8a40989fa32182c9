import numpy as np
import pytest
import torch
from torch.nn import functional as F

from wcdas.losses import BalancedSoftmaxLoss, LogitAdjustmentLoss


@pytest.mark.parametrize("tau", [0.3, 1.0, 2.0])
def test_definition(tau, class_counts, logits, labels):
    prior = np.array(class_counts) / sum(class_counts)
    p = prior**tau * np.exp(logits.numpy())
    p /= p.sum(axis=1, keepdims=True)
    expected = torch.from_numpy(-np.log(p[np.arange(8), labels.numpy()]))
    loss = LogitAdjustmentLoss(class_counts, tau, reduction="none")
    torch.testing.assert_close(loss(logits, labels), expected)


def test_without_adjustment_is_cross_entropy(class_counts, logits, labels):
    value = LogitAdjustmentLoss(class_counts, tau=0.0)(logits, labels)
    torch.testing.assert_close(value, F.cross_entropy(logits, labels))


def test_bayes_optimal_logits_are_balanced():
    """Its minimiser predicts the posterior under a uniform prior, not under the training one."""
    likelihood = torch.tensor([0.2, 0.6, 0.2], dtype=torch.float64)
    counts = [900, 90, 10]
    posterior = likelihood * torch.tensor(counts, dtype=torch.float64)
    posterior /= posterior.sum()
    z = likelihood.log()[None].requires_grad_()
    LogitAdjustmentLoss(counts)(z, posterior[None]).backward()
    torch.testing.assert_close(z.grad, torch.zeros_like(z))


def test_bad_tau(class_counts):
    with pytest.raises(ValueError, match="tau is -1; expected a number of at least 0"):
        LogitAdjustmentLoss(class_counts, tau=-1)


def test_definition_of_the_balanced_softmax(class_counts, logits, labels):
    p = np.array(class_counts) * np.exp(logits.numpy())
    p /= p.sum(axis=1, keepdims=True)
    expected = -np.log(p[np.arange(8), labels.numpy()]).mean()
    np.testing.assert_allclose(
        BalancedSoftmaxLoss(class_counts)(logits, labels).item(), expected, rtol=1e-12
    )


def test_the_balanced_softmax_is_logit_adjustment_with_tau_one(class_counts, logits, soft_targets):
    options = {"label_smoothing": 0.1, "reduction": "none"}
    torch.testing.assert_close(
        BalancedSoftmaxLoss(class_counts, **options)(logits, soft_targets),
        LogitAdjustmentLoss(class_counts, tau=1.0, **options)(logits, soft_targets),
    )

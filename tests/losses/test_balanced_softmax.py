import numpy as np
import torch

from wcdas.losses import BalancedSoftmaxLoss, LogitAdjustmentLoss


def test_definition(class_counts, logits, labels):
    p = np.array(class_counts) * np.exp(logits.numpy())
    p /= p.sum(axis=1, keepdims=True)
    expected = -np.log(p[np.arange(8), labels.numpy()]).mean()
    np.testing.assert_allclose(
        BalancedSoftmaxLoss(class_counts)(logits, labels).item(), expected, rtol=1e-12
    )


def test_is_logit_adjustment_with_tau_one(class_counts, logits, soft_targets):
    options = {"label_smoothing": 0.1, "reduction": "none"}
    torch.testing.assert_close(
        BalancedSoftmaxLoss(class_counts, **options)(logits, soft_targets),
        LogitAdjustmentLoss(class_counts, tau=1.0, **options)(logits, soft_targets),
    )

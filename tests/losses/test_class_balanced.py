import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from wcdas.losses import ClassBalancedLoss, FocalLoss, class_balanced_weights


@settings(max_examples=40)
@given(
    counts=st.lists(st.integers(1, 10**7), min_size=1, max_size=6),
    beta=st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.9999, 1 - 1e-9, 1 - 1e-15]),
)
def test_weights_against_fifty_digits(counts, beta):
    with mpmath.workdps(50):
        b = mpmath.mpf(beta)
        raw = [(1 - b) / (1 - b**n) for n in counts]
        expected = [float(len(counts) * w / mpmath.fsum(raw)) for w in raw]
    np.testing.assert_allclose(class_balanced_weights(counts, beta).numpy(), expected, rtol=1e-12)


def test_weights_between_none_and_inverse_frequency(class_counts):
    torch.testing.assert_close(
        class_balanced_weights(class_counts, 0.0), torch.ones(5, dtype=torch.float64)
    )
    inverse = 1 / torch.tensor(class_counts, dtype=torch.float64)
    torch.testing.assert_close(
        class_balanced_weights(class_counts, 1 - 1e-14), 5 * inverse / inverse.sum()
    )


def test_mean_is_over_the_batch(class_counts, logits, labels, soft_targets):
    n = np.array(class_counts)
    w = (1 - 0.99) / (1 - 0.99**n)
    w = torch.from_numpy(5 * w / w.sum())
    loss = ClassBalancedLoss(class_counts, beta=0.99)
    expected = (w[labels] * F.cross_entropy(logits, labels, reduction="none")).mean()
    torch.testing.assert_close(loss(logits, labels), expected)
    expected = -(soft_targets * w * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(loss(logits, soft_targets), expected)


def test_focal_form(class_counts, logits, labels):
    loss = ClassBalancedLoss(class_counts, beta=0.99, gamma=1.5, reduction="none")
    w = class_balanced_weights(class_counts, 0.99)
    expected = w[labels] * FocalLoss(1.5, reduction="none")(logits, labels)
    torch.testing.assert_close(loss(logits, labels), expected)


@pytest.mark.parametrize("beta", [1.0, -0.1, float("nan")])
def test_bad_beta(beta, class_counts):
    with pytest.raises(
        ValueError, match=r"beta is .*; expected a number of at least 0 and below 1"
    ):
        ClassBalancedLoss(class_counts, beta=beta)

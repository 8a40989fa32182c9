import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from wcdas.losses import LDAMLoss, class_balanced_weights


def by_hand(z, y, counts, max_margin, scale):
    """−log softmax of the label with its scaled margin taken off, one sample at a time."""
    margins = 1 / np.sqrt(np.sqrt(np.array(counts)))
    margins *= max_margin / margins.max()
    values = []
    for row, label in zip(z, y, strict=True):
        own = np.exp(row[label] - scale * margins[label])
        others = sum(np.exp(row[j]) for j in range(len(row)) if j != label)
        values.append(-np.log(own / (own + others)))
    return torch.tensor(np.array(values))


@pytest.mark.parametrize(("max_margin", "scale"), [(0.5, 30.0), (0.3, 30.0), (0.5, 10.0)])
def test_definition(max_margin, scale, class_counts, logits, labels):
    loss = LDAMLoss(class_counts, max_margin, scale, reduction="none")
    expected = by_hand(logits.numpy(), labels.numpy(), class_counts, max_margin, scale)
    torch.testing.assert_close(loss(logits, labels), expected)


@settings(max_examples=30)
@given(counts=st.lists(st.integers(1, 10**6), min_size=2, max_size=20))
def test_margins_grow_as_counts_fall(counts):
    margins = LDAMLoss(counts).margins
    assert margins.max().item() == pytest.approx(0.5)
    order = np.argsort(counts)
    assert (margins[order].diff() <= 0).all()
    np.testing.assert_allclose(margins.numpy() ** 4 * counts, 0.5**4 * min(counts), rtol=1e-9)


def test_scale_is_that_of_the_cosine_head(class_counts, labels):
    cosines = torch.rand(8, 5, dtype=torch.float64) * 2 - 1
    shifted = cosines.clone()
    margins = LDAMLoss(class_counts).margins
    shifted[torch.arange(8), labels] -= margins[labels]
    for scale in (30.0, 16.0):
        value = LDAMLoss(class_counts, scale=scale)(scale * cosines, labels)
        torch.testing.assert_close(value, F.cross_entropy(scale * shifted, labels))


def test_soft_targets_share_the_margin(class_counts, logits, soft_targets):
    loss = LDAMLoss(class_counts, scale=4.0)
    z = logits - 4.0 * loss.margins * soft_targets
    expected = -(soft_targets * z.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(loss(logits, soft_targets), expected)


def test_deferred_reweighting_is_a_weighted_mean(class_counts, logits, labels):
    w = class_balanced_weights(class_counts, 0.99)
    losses = LDAMLoss(class_counts, reduction="none")(logits, labels)
    expected = (w[labels] * losses).sum() / w[labels].sum()
    torch.testing.assert_close(LDAMLoss(class_counts, beta=0.99)(logits, labels), expected)


def test_bad_options(class_counts):
    with pytest.raises(ValueError, match="max_margin is 0; expected a number above 0"):
        LDAMLoss(class_counts, max_margin=0)
    with pytest.raises(ValueError, match="scale is -1; expected a number above 0"):
        LDAMLoss(class_counts, scale=-1)
    with pytest.raises(ValueError, match="beta is 1"):
        LDAMLoss(class_counts, beta=1)
    with pytest.raises(ValueError, match="ldam needs an image of every class"):
        LDAMLoss([3, 0])

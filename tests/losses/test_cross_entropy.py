import numpy as np
import pytest
import torch
from torch.nn import functional as F

from wcdas.losses import CrossEntropyLoss


def test_definition(logits, labels):
    z = logits.numpy()
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    expected = -np.log(p[np.arange(8), labels.numpy()])
    torch.testing.assert_close(
        CrossEntropyLoss(reduction="none")(logits, labels), torch.from_numpy(expected)
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_label_smoothing_is_torchs(reduction, logits, labels, soft_targets):
    loss = CrossEntropyLoss(label_smoothing=0.3, reduction=reduction)
    for target in (labels, soft_targets):
        expected = F.cross_entropy(logits, target, label_smoothing=0.3, reduction=reduction)
        torch.testing.assert_close(loss(logits, target), expected)

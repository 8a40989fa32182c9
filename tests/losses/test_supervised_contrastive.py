import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss

from wcdas.losses import LOSSES, SupervisedContrastiveLoss

LABELS = {
    "a mix": [0, 1, 0, 2, 1, 0, 2, 2],
    "classes with a single member": [0, 1, 0, 2, 3, 0, 4, 3],
    "one class": [5, 5, 5, 5, 5, 5, 5, 5],
    "two views": [0, 1, 2, 3, 0, 1, 2, 3],
}


def embeddings(count=8, dtype=torch.float64):
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 5, generator=generator, dtype=torch.float64).to(dtype)


def by_hand(z, labels, temperature):
    """Equation 2 of the paper, pair by pair."""
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    losses = []
    for i, own in enumerate(labels):
        others = [a for a in range(len(z)) if a != i]
        denominator = sum(math.exp(z[i] @ z[a] / temperature) for a in others)
        positive = [p for p in others if labels[p] == own]
        if positive:
            shares = [math.exp(z[i] @ z[p] / temperature) / denominator for p in positive]
            losses.append(-sum(map(math.log, shares)) / len(positive))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_as_in_the_paper(labels, temperature):
    value = SupervisedContrastiveLoss(temperature)(embeddings(), torch.tensor(labels))
    assert value.item() == pytest.approx(by_hand(embeddings().numpy(), labels, temperature), 1e-12)


# Of a batch of one class they make 0, as there is nothing to tell it from.
@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("labels", [LABELS[name] for name in LABELS if name != "one class"])
def test_as_in_pytorch_metric_learning(labels, temperature):
    z, theirs = embeddings().requires_grad_(), embeddings().requires_grad_()
    labels = torch.tensor(labels)
    value = SupervisedContrastiveLoss(temperature)(z, labels)
    expected = SupConLoss(temperature)(theirs, labels)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(z.grad, theirs.grad, rtol=1e-10, atol=1e-13)


def test_one_class_at_one_place_by_hand():
    """All similarities are equal: every positive has one share of the seven others."""
    z = torch.ones(8, 5, dtype=torch.float64)
    value = SupervisedContrastiveLoss(0.3)(z, torch.zeros(8, dtype=torch.long))
    assert value.item() == pytest.approx(torch.tensor(7.0, dtype=torch.float64).log().item())


def test_order_and_names_of_classes_do_not_matter():
    z, labels = embeddings(), torch.tensor(LABELS["classes with a single member"])
    loss, order = SupervisedContrastiveLoss(), torch.tensor([3, 0, 7, 5, 1, 6, 2, 4])
    torch.testing.assert_close(loss(z[order], labels[order]), loss(z, labels))
    torch.testing.assert_close(loss(z, 10 - labels), loss(z, labels))


def test_length_of_an_embedding_does_not_matter():
    z, labels = embeddings(), torch.tensor(LABELS["a mix"])
    loss = SupervisedContrastiveLoss()
    torch.testing.assert_close(loss(z * torch.arange(1, 9)[:, None], labels), loss(z, labels))


@pytest.mark.parametrize("labels", [[0, 1, 2], [0]], ids=["none of a class", "one embedding"])
def test_without_a_pair_there_is_nothing_to_learn(labels):
    z = embeddings(len(labels)).requires_grad_()
    value = SupervisedContrastiveLoss()(z, torch.tensor(labels))
    value.backward()
    assert value == 0
    assert (z.grad == 0).all()


def test_gradcheck():
    labels = torch.tensor(LABELS["a mix"])
    z = embeddings().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: SupervisedContrastiveLoss(0.5)(z, labels), z)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    z, labels = embeddings(dtype=dtype), torch.tensor(LABELS["a mix"])
    loss = SupervisedContrastiveLoss()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(z, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(z.float(), labels), rtol=0, atol=0)


def test_compiles():
    z, labels = embeddings(), torch.tensor(LABELS["a mix"])
    loss = SupervisedContrastiveLoss()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z, labels), loss(z, labels))


def test_it_is_no_loss_of_a_stage():
    assert SupervisedContrastiveLoss not in LOSSES.values()


def test_bad_inputs():
    loss = SupervisedContrastiveLoss()
    with pytest.raises(ValueError, match=r"labels have shape \(3,\); expected \(8,\)"):
        loss(embeddings(), torch.arange(3))
    with pytest.raises(ValueError, match=r"features have shape \(2, 8, 5\)"):
        loss(embeddings().expand(2, 8, 5), torch.arange(2))
    with pytest.raises(ValueError, match="features contain NaN"):
        loss(embeddings() * torch.nan, torch.arange(8))
    with pytest.raises(ValueError, match="temperature is 0; expected a number above 0"):
        SupervisedContrastiveLoss(temperature=0)

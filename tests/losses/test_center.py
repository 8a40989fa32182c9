import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wcdas.losses import CenterLoss


def moved_by_hand(centers, features, labels, alpha):
    """Equation 4 of the paper and its update, class by class and sample by sample."""
    moved = centers.copy()
    for j in range(len(centers)):
        total, count = np.zeros(centers.shape[1]), 0
        for x, label in zip(features, labels, strict=True):
            if label == j:
                total += centers[j] - x
                count += 1
        moved[j] = centers[j] - alpha * total / (1 + count)
    return moved


@settings(max_examples=30)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    alpha=st.sampled_from([0.1, 0.5, 1.0]),
    seed=st.integers(0, 2**16),
)
def test_centers_move_as_in_the_paper(labels, alpha, seed):
    generator = torch.Generator().manual_seed(seed)
    loss = CenterLoss(3, 4, alpha=alpha).double()
    expected = loss.centers.numpy().copy()
    for _ in range(3):
        x = torch.randn(len(labels), 3, generator=generator, dtype=torch.float64)
        loss(x, torch.tensor(labels))
        expected = moved_by_hand(expected, x.numpy(), labels, alpha)
    np.testing.assert_allclose(loss.centers.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_value_and_gradient_are_of_the_centers_before_the_move(labels):
    loss = CenterLoss(3, 5, weight=0.4).double()
    loss.centers.normal_()
    before = loss.centers.clone()
    x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    value = loss(x, labels)
    assert not torch.equal(loss.centers, before)
    value.backward()
    offsets = x.detach() - before[labels]
    torch.testing.assert_close(value.detach(), 0.4 / 2 * offsets.square().sum() / 8)
    torch.testing.assert_close(x.grad, 0.4 * offsets / 8)


def test_two_calls_before_one_backward(labels):
    loss = CenterLoss(3, 5)
    x = torch.randn(8, 3, requires_grad=True)
    (loss(x, labels) + loss(x, labels)).backward()
    assert x.grad.isfinite().all()


def test_gradcheck(labels):
    loss = CenterLoss(3, 5, weight=1.0).double().eval()
    loss.centers.normal_()
    x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), x)


def test_centers_are_no_parameters_and_stay_in_evaluation(labels):
    loss = CenterLoss(3, 5).eval()
    loss(torch.randn(8, 3), labels)
    assert (loss.centers == 0).all()
    assert list(loss.parameters()) == []


def test_converges_to_the_class_mean():
    loss = CenterLoss(2, 2)
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]])
    for _ in range(100):
        loss(x, torch.tensor([0, 0, 1]))
    torch.testing.assert_close(loss.centers, torch.tensor([[2.0, 3.0], [9.0, 9.0]]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype, labels):
    x = torch.randn(8, 3).to(dtype)
    loss, reference = CenterLoss(3, 5), CenterLoss(3, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(x, labels)
    torch.testing.assert_close(value, reference(x.float(), labels), rtol=0, atol=0)
    assert value.dtype == torch.float32
    torch.testing.assert_close(loss.centers, reference.centers, rtol=0, atol=0)


def test_compiles_and_moves(labels):
    loss, reference = CenterLoss(3, 5), CenterLoss(3, 5)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    x = torch.randn(8, 3, requires_grad=True)
    value = compiled(x, labels)
    value.backward()
    torch.testing.assert_close(value, reference(x, labels))
    torch.testing.assert_close(loss.centers, reference.centers)


def test_reductions(labels):
    x = torch.randn(8, 3)
    values = CenterLoss(3, 5, reduction="none")(x, labels)
    torch.testing.assert_close(values, 0.003 / 2 * x.square().sum(dim=1))
    torch.testing.assert_close(CenterLoss(3, 5, reduction="sum")(x, labels), values.sum())


def test_bad_inputs(labels):
    loss = CenterLoss(3, 5)
    with pytest.raises(ValueError, match=r"features have shape \(8, 4\); expected \(batch, 3\)"):
        loss(torch.randn(8, 4), labels)
    with pytest.raises(ValueError, match="label 5 is out of range"):
        loss(torch.randn(8, 3), labels + 1)
    with pytest.raises(TypeError, match="expected integer class indices"):
        loss(torch.randn(8, 3), torch.rand(8, 5))
    with pytest.raises(ValueError, match="alpha is 2; expected a number above 0 and at most 1"):
        CenterLoss(3, 5, alpha=2)
    with pytest.raises(ValueError, match="unknown reduction 'avg'"):
        CenterLoss(3, 5, reduction="avg")

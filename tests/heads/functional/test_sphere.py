import torch
from torch.autograd import gradcheck, gradgradcheck

from wcdas.heads.functional.sphere import unit


def test_direction_and_length():
    vectors = torch.randn(5, 3)
    direction, norm = unit(vectors)
    torch.testing.assert_close(direction, torch.nn.functional.normalize(vectors))
    torch.testing.assert_close(norm, vectors.norm(dim=1))


def test_a_zero_vector_stays_zero_with_zero_gradient():
    vectors = torch.zeros(2, 3, requires_grad=True)
    direction, norm = unit(vectors)
    (gradient,) = torch.autograd.grad(direction.sum() + norm.sum(), vectors)
    assert torch.equal(direction, torch.zeros(2, 3))
    assert torch.equal(gradient, torch.zeros(2, 3))


def test_derivatives():
    vectors = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(unit, vectors)
    assert gradgradcheck(unit, vectors)

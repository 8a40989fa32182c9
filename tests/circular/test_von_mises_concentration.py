from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap

from wcdas.circular import concentration_from_variance
from wcdas.circular.von_mises import circular_variance

mpmath = pytest.importorskip("mpmath")

VARIANCES = [1e-11, 1e-7, 9.99e-4, 1.001e-3, 0.01, 0.3, 0.7, 0.99, 1 - 1e-6, 1 - 1e-11]


def solution(variance: float) -> Any:
    start = float(concentration_from_variance(torch.tensor(variance, dtype=torch.float64)))
    with mpmath.workdps(50):
        return mpmath.findroot(
            lambda k: (1 - mpmath.besseli(1, k) / mpmath.besseli(0, k)) / variance - 1,
            (start * (1 - mpmath.mpf(10) ** -9), start),
            tol=1e-60,
            verify=False,
        )


@pytest.mark.parametrize("variance", VARIANCES)
def test_solution_and_slope(variance: float) -> None:
    q = torch.tensor(variance, dtype=torch.float64, requires_grad=True)
    kappa = concentration_from_variance(q)
    (slope,) = torch.autograd.grad(kappa, q)
    with mpmath.workdps(50):
        exact = solution(variance)
        length = 1 - mpmath.mpf(variance)
        exact_slope = -1 / (1 - length**2 - length / exact)
        np.testing.assert_allclose(kappa.item(), float(exact), rtol=1e-12)
        np.testing.assert_allclose(slope.item(), float(exact_slope), rtol=1e-9)


@given(st.floats(1e-12, 1.0))
def test_inverts_the_variance(variance: float) -> None:
    q = torch.tensor(variance, dtype=torch.float64)
    torch.testing.assert_close(
        circular_variance(concentration_from_variance(q)), q, rtol=1e-12, atol=0
    )


def test_uniform() -> None:
    q = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    kappa = concentration_from_variance(q)
    assert kappa == 0
    assert torch.autograd.grad(kappa, q)[0] == -2


def test_gradients() -> None:
    q = torch.tensor([0.05, 0.4, 0.9, 0.999], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(concentration_from_variance, q)
    assert torch.autograd.gradgradcheck(concentration_from_variance, q)


def test_second_gradient_of_a_large_concentration() -> None:
    # κ ≈ 1/2q for small q, so κ'' ≈ 1/q³.
    q = torch.tensor(1e-6, dtype=torch.float64)
    second = grad(grad(concentration_from_variance))(q)
    np.testing.assert_allclose(second.item(), 1e18, rtol=1e-5)


def test_function_transforms() -> None:
    q = torch.tensor(VARIANCES, dtype=torch.float64)
    torch.testing.assert_close(vmap(concentration_from_variance)(q), concentration_from_variance(q))
    expected = torch.stack([grad(concentration_from_variance)(value) for value in q])
    torch.testing.assert_close(vmap(grad(concentration_from_variance))(q), expected)


def test_float32_in_float32_out() -> None:
    w = torch.tensor([-3.0, 0.0, 9.0], requires_grad=True)
    kappa = concentration_from_variance(torch.sigmoid(-w))
    kappa.sum().backward()
    assert kappa.dtype == torch.float32
    assert w.grad is not None
    assert w.grad.dtype == torch.float32
    expected = concentration_from_variance(torch.sigmoid(-w.detach().double()))
    torch.testing.assert_close(kappa.detach(), expected.float(), rtol=1e-5, atol=0)

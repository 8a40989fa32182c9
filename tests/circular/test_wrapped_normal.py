import numpy as np
import pytest
import torch

from wcdas.circular import WrappedNormal

mpmath = pytest.importorskip("mpmath")


def normal(concentration: float) -> WrappedNormal:
    return WrappedNormal(torch.tensor(concentration, dtype=torch.float64))


@pytest.mark.parametrize("rho", [0.0, 1e-8, 0.02, 0.0432, 0.0433, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("angle", [0.0, 0.7, 2.0, 3.14])
def test_density_is_a_theta_function(rho: float, angle: float) -> None:
    with mpmath.workdps(40):
        expected = mpmath.log(mpmath.jtheta(3, mpmath.mpf(angle) / 2, rho) / (2 * mpmath.pi))
    log_prob = normal(rho).log_prob(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(log_prob, float(expected), rtol=1e-14)


@pytest.mark.parametrize("rho", [0.9, 0.999, 1 - 1e-8, 1 - 1e-14])
@pytest.mark.parametrize("angle", [0.0, 1e-6, 1.0, 3.0, 3.14159])
def test_log_density_far_in_the_tail(rho: float, angle: float) -> None:
    with mpmath.workdps(40):
        variance = -2 * mpmath.log(mpmath.mpf(rho))
        images = [mpmath.mpf(angle) + 2 * mpmath.pi * k for k in (-1, 0, 1)]
        largest = max(-(image**2) for image in images) / (2 * variance)
        others = sum(mpmath.exp(-(image**2) / (2 * variance) - largest) for image in images)
        expected = largest + mpmath.log(others) - mpmath.log(2 * mpmath.pi * variance) / 2
    log_prob = normal(rho).log_prob(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(log_prob, float(expected), rtol=1e-14)


def test_both_forms_meet() -> None:
    border = float(np.exp(-np.pi))
    angles = torch.linspace(-3, 3, 13, dtype=torch.float64)
    below, above = normal(border * (1 - 1e-14)), normal(border * (1 + 1e-14))
    torch.testing.assert_close(below.log_prob(angles), above.log_prob(angles), rtol=0, atol=1e-14)
    torch.testing.assert_close(below.cdf(angles), above.cdf(angles), rtol=0, atol=1e-14)


@pytest.mark.parametrize("rho", [0.0, 1e-300, 1e-3, 0.9, 1 - 1e-15])
def test_gradients_are_finite(rho: float) -> None:
    concentration = torch.tensor(rho, dtype=torch.float64, requires_grad=True)
    distribution = WrappedNormal(concentration)
    angle = torch.tensor(1e-9, dtype=torch.float64)
    total = distribution.log_prob(angle) + distribution.cdf(angle)
    (gradient,) = torch.autograd.grad(total, concentration)
    assert gradient.isfinite()


def test_uniform_at_zero() -> None:
    angles = torch.linspace(-3, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(
        normal(0.0).prob(angles), torch.full_like(angles, 1 / (2 * torch.pi)), rtol=1e-15, atol=0
    )
    torch.testing.assert_close(normal(0.0).cdf(angles), (angles + torch.pi) / (2 * torch.pi))


def test_fit_recovers_the_parameters() -> None:
    torch.manual_seed(0)
    rho = torch.tensor([0.2, 0.8, 0.999], dtype=torch.float64)
    truth = WrappedNormal(rho, torch.tensor([0.3, -3.0, 2.0], dtype=torch.float64))
    fitted = WrappedNormal.fit(truth.sample((1_000_000,)).mT)
    # var cos(θ − μ) = (1 + α₂)/2 − α₁², var sin(θ − μ) = (1 − α₂)/2
    error = ((1 + rho**4) / 2 - rho**2).sqrt() / 1e3
    assert ((fitted.concentration - rho).abs() < 4 * error).all()
    assert ((fitted.loc - truth.loc).abs() < 4 * ((1 - rho**4) / 2).sqrt() / rho / 1e3).all()

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from wcdas.circular import WrappedCauchy

ANGLES = torch.linspace(-3.14, 3.14, 101, dtype=torch.float64)


def cauchy(concentration: float, loc: float = 0.0) -> WrappedCauchy:
    return WrappedCauchy(torch.tensor(concentration, dtype=torch.float64), loc)


@pytest.mark.parametrize("rho", [1e-6, 0.1, 0.5, 0.9, 0.99])
def test_density_and_cdf_agree_with_scipy(rho: float) -> None:
    # scipy's angles run from 0 to 2π.
    positive = ANGLES.numpy() % (2 * np.pi)
    density = scipy.stats.wrapcauchy.pdf(positive, rho)
    np.testing.assert_allclose(cauchy(rho).prob(ANGLES), density, rtol=1e-10)
    upper_half = ANGLES[ANGLES > 0]
    cdf = scipy.stats.wrapcauchy.cdf(upper_half.numpy(), rho) + 0.5
    np.testing.assert_allclose(cauchy(rho).cdf(upper_half), cdf, rtol=1e-10)


@pytest.mark.parametrize("rho", [0.9999, 1 - 1e-9])
@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1.0, 3.0])
def test_density_near_a_point_mass(rho: float, angle: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        r, theta = mpmath.mpf(rho), mpmath.mpf(angle)
        expected = (1 - r**2) / (2 * mpmath.pi * (1 + r**2 - 2 * r * mpmath.cos(theta)))
    density = cauchy(rho).prob(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(density, float(expected), rtol=2e-14)


def test_fit_recovers_the_parameters() -> None:
    torch.manual_seed(0)
    truth = WrappedCauchy(torch.tensor([0.2, 0.8, 0.999]), torch.tensor([0.3, -3.0, 2.0]))
    fitted = WrappedCauchy.fit(truth.sample((1_000_000,)).mT)
    # The Fisher information of ρ is 2/(1 − ρ²)².
    error = (1 - truth.concentration**2) / (2e6) ** 0.5
    assert ((fitted.concentration - truth.concentration).abs() < 4 * error).all()
    assert ((fitted.loc - truth.loc).abs() < 4 * error / truth.concentration).all()


@pytest.mark.parametrize("size", [3, 5, 30])
def test_fit_maximises_the_likelihood(size: int) -> None:
    torch.manual_seed(size)
    samples = cauchy(0.7, 1.0).sample((size,))

    def loss(parameters: np.ndarray) -> float:
        radius, loc = 1 / (1 + np.exp(-parameters[0])), parameters[1]
        return -float(cauchy(radius, loc).log_prob(samples).sum())

    best = scipy.optimize.minimize(loss, [0.0, 1.0], method="Nelder-Mead", tol=1e-10)
    fitted = WrappedCauchy.fit(samples)
    assert -fitted.log_prob(samples).sum() <= best.fun + 1e-8
    np.testing.assert_allclose(fitted.concentration, 1 / (1 + np.exp(-best.x[0])), atol=1e-5)


def test_fit_is_batched() -> None:
    torch.manual_seed(0)
    samples = cauchy(0.5).sample((2, 3, 20))
    fitted = WrappedCauchy.fit(samples)
    assert fitted.batch_shape == (2, 3)
    alone = WrappedCauchy.fit(samples[1, 2])
    torch.testing.assert_close(fitted.concentration[1, 2], alone.concentration)

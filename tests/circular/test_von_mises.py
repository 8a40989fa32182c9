import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

from wcdas.circular import VonMises

mpmath = pytest.importorskip("mpmath")

ANGLES = torch.linspace(-3.14, 3.14, 101, dtype=torch.float64)


def von_mises(concentration: float) -> VonMises:
    return VonMises(torch.tensor(concentration, dtype=torch.float64))


@pytest.mark.parametrize("kappa", [1e-3, 0.5, 4.0, 45.0])
def test_agrees_with_scipy(kappa: float) -> None:
    reference = scipy.stats.vonmises(kappa)
    np.testing.assert_allclose(von_mises(kappa).prob(ANGLES), reference.pdf(ANGLES), rtol=1e-10)
    np.testing.assert_allclose(von_mises(kappa).cdf(ANGLES), reference.cdf(ANGLES), atol=1e-10)


@pytest.mark.parametrize("kappa", [500.0, 1e5])
def test_cdf_of_a_narrow_peak(kappa: float) -> None:
    # scipy's own cdf is a Normal approximation beyond κ = 50.
    distribution = von_mises(kappa)
    angle = 1.5 / kappa**0.5
    mass, _ = scipy.integrate.quad(
        lambda x: float(distribution.prob(torch.tensor(x, dtype=torch.float64))), 0, angle
    )
    cdf = distribution.cdf(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(cdf, 0.5 + mass, atol=1e-12)


@pytest.mark.parametrize("kappa", [0.1, 1e3, 1e8])
@pytest.mark.parametrize("angle", [0.0, 1e-5, 2.0])
def test_log_density(kappa: float, angle: float) -> None:
    with mpmath.workdps(40):
        exponent = mpmath.mpf(kappa) * mpmath.cos(mpmath.mpf(angle))
        expected = exponent - mpmath.log(2 * mpmath.pi * mpmath.besseli(0, kappa))
    log_prob = von_mises(kappa).log_prob(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(log_prob, float(expected), rtol=1e-12)


@pytest.mark.parametrize("kappa", [1e-8, 0.1, 3.0, 100.0, 1e4, 1e6])
def test_moments_are_ratios_of_bessel_functions(kappa: float) -> None:
    n = [0, 1, 2, 5, 30]
    with mpmath.workdps(40):
        expected = [float(mpmath.besseli(k, kappa) / mpmath.besseli(0, kappa)) for k in n]
    np.testing.assert_allclose(
        von_mises(kappa).central_moment(torch.tensor(n)), expected, rtol=1e-12
    )


@pytest.mark.parametrize("kappa", [1e-8, 3.0, 499.0, 501.0, 1e10])
def test_variance_keeps_its_digits(kappa: float) -> None:
    with mpmath.workdps(40):
        expected = 1 - mpmath.besseli(1, kappa) / mpmath.besseli(0, kappa)
    np.testing.assert_allclose(von_mises(kappa).variance, float(expected), rtol=1e-12)


def test_uniform_at_zero() -> None:
    uniform = von_mises(0.0)
    assert uniform.central_moment(torch.tensor([0, 1, 2])).tolist() == [1, 0, 0]
    torch.testing.assert_close(uniform.cdf(ANGLES), (ANGLES + torch.pi) / (2 * torch.pi))


def test_too_many_moments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"concentration 1e\+12 .*at most 4194304"):
        von_mises(1e12).central_moment(1)


def test_fit_recovers_the_parameters() -> None:
    torch.manual_seed(0)
    kappa = torch.tensor([0.2, 8.0, 9999.0], dtype=torch.float64)
    loc = torch.tensor([0.3, -3.0, 2.0], dtype=torch.float64)
    fitted = VonMises.fit(VonMises(kappa, loc).sample((1_000_000,)).mT)
    # The Fisher information of κ is A'(κ), of μ it is κA(κ).
    q = VonMises(kappa).variance
    error = (q * (2 - q) - (1 - q) / kappa).rsqrt() / 1e3
    assert ((fitted.concentration - kappa).abs() < 4 * error).all()
    assert ((fitted.loc - loc).abs() < 4 * (kappa * (1 - q)).rsqrt() / 1e3).all()

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from wcdas.circular import (
    CircularDistribution,
    SymmetricWrappedStable,
    WrappedCauchy,
    WrappedNormal,
)

ANGLES = torch.linspace(-3.14, 3.14, 101, dtype=torch.float64)


@pytest.mark.parametrize(("exponent", "family"), [(1.0, WrappedCauchy), (2.0, WrappedNormal)])
@pytest.mark.parametrize("rho", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_members(exponent: float, family: type[CircularDistribution], rho: float) -> None:
    concentration = torch.tensor(rho, dtype=torch.float64)
    stable = SymmetricWrappedStable(concentration, exponent, 0.3)
    member = family(concentration, 0.3)
    peak = float(member.prob(torch.tensor(0.3, dtype=torch.float64)))
    torch.testing.assert_close(
        stable.prob(ANGLES), member.prob(ANGLES), rtol=1e-11, atol=1e-13 * peak
    )
    torch.testing.assert_close(stable.cdf(ANGLES), member.cdf(ANGLES), rtol=0, atol=1e-14)
    n = torch.arange(20)
    torch.testing.assert_close(stable.central_moment(n), member.central_moment(n))


def test_heavy_tail_agrees_with_a_longer_sum() -> None:
    rho, exponent, angle = 0.6, 0.5, 1.3
    terms = range(1, 20_000)
    expected = math.fsum(rho ** (n**exponent) * math.cos(n * angle) for n in terms)
    stable = SymmetricWrappedStable(torch.tensor(rho, dtype=torch.float64), exponent)
    density = stable.prob(torch.tensor(angle, dtype=torch.float64))
    assert abs(float(density) - (1 + 2 * expected) / (2 * math.pi)) < 1e-12


def test_tail_density_below_rounding_has_a_finite_log() -> None:
    stable = SymmetricWrappedStable(torch.tensor(0.99, dtype=torch.float64), 2.0)
    assert stable.log_prob(ANGLES).isfinite().all()


@pytest.mark.parametrize("exponent", [0.4, 2.1, math.nan])
def test_bad_exponent(exponent: float) -> None:
    with pytest.raises(ValueError, match=rf"^exponent is {exponent:g}; expected 0.5 to 2\. Raise"):
        SymmetricWrappedStable(0.5, torch.tensor([1.0, exponent]))


@pytest.mark.parametrize("rho", [1.0, -0.1])
def test_bad_concentration(rho: float) -> None:
    with pytest.raises(ValueError, match=r"parameter concentration .*HalfOpenInterval"):
        SymmetricWrappedStable(rho, 1.5)


def test_too_long_a_series_is_refused() -> None:
    stable = SymmetricWrappedStable(torch.tensor([0.1, 0.999]), 0.5)
    with pytest.raises(
        ValueError, match=r"concentration 0.999 with exponent 0.5 .*at most 4194304"
    ):
        stable.log_prob(torch.tensor(0.0))


def test_fit_recovers_the_parameters() -> None:
    torch.manual_seed(0)
    rho = torch.tensor([0.5, 0.8, 0.9], dtype=torch.float64)
    exponent = torch.tensor([0.7, 1.5, 1.0], dtype=torch.float64)
    loc = torch.tensor([0.3, -3.0, 2.0], dtype=torch.float64)
    fitted = SymmetricWrappedStable.fit(
        SymmetricWrappedStable(rho, exponent, loc).sample((1_000_000,)).mT
    )
    # Four standard errors of a mean of cosines or sines are below 0.003, those of
    # log₂(log α₂/log α₁) a few times that.
    torch.testing.assert_close(fitted.concentration, rho, rtol=0, atol=0.003)
    torch.testing.assert_close(fitted.loc, loc, rtol=0, atol=0.006)
    torch.testing.assert_close(fitted.exponent, exponent, rtol=0, atol=0.02)


def test_fit_moments_recovers_the_parameters() -> None:
    truth = SymmetricWrappedStable(
        torch.tensor([0.1, 0.5, 0.99], dtype=torch.float64),
        torch.tensor([2.0, 0.6, 1.3], dtype=torch.float64),
    )
    fitted = SymmetricWrappedStable.fit_moments(truth.cosine_moment(torch.arange(1, 6)))
    torch.testing.assert_close(fitted.concentration, truth.concentration)
    torch.testing.assert_close(fitted.exponent, truth.exponent)


def test_fit_of_a_second_moment_below_zero_takes_the_largest_exponent() -> None:
    assert SymmetricWrappedStable.fit_moments(torch.tensor([0.3, -0.01])).exponent == 2


def cauchy(concentration: float, loc: float = 0.0) -> WrappedCauchy:
    return WrappedCauchy(torch.tensor(concentration, dtype=torch.float64), loc)


@pytest.mark.parametrize("rho", [1e-6, 0.1, 0.5, 0.9, 0.99])
def test_cauchy_density_and_cdf_agree_with_scipy(rho: float) -> None:
    # scipy's angles run from 0 to 2π.
    positive = ANGLES.numpy() % (2 * np.pi)
    density = scipy.stats.wrapcauchy.pdf(positive, rho)
    np.testing.assert_allclose(cauchy(rho).prob(ANGLES), density, rtol=1e-10)
    upper_half = ANGLES[ANGLES > 0]
    cdf = scipy.stats.wrapcauchy.cdf(upper_half.numpy(), rho) + 0.5
    np.testing.assert_allclose(cauchy(rho).cdf(upper_half), cdf, rtol=1e-10)


@pytest.mark.parametrize("rho", [0.9999, 1 - 1e-9])
@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1.0, 3.0])
def test_cauchy_density_near_a_point_mass(rho: float, angle: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        r, theta = mpmath.mpf(rho), mpmath.mpf(angle)
        expected = (1 - r**2) / (2 * mpmath.pi * (1 + r**2 - 2 * r * mpmath.cos(theta)))
    density = cauchy(rho).prob(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(density, float(expected), rtol=2e-14)


def test_cauchy_fit_recovers_the_parameters() -> None:
    torch.manual_seed(0)
    truth = WrappedCauchy(torch.tensor([0.2, 0.8, 0.999]), torch.tensor([0.3, -3.0, 2.0]))
    fitted = WrappedCauchy.fit(truth.sample((1_000_000,)).mT)
    # The Fisher information of ρ is 2/(1 − ρ²)².
    error = (1 - truth.concentration**2) / (2e6) ** 0.5
    assert ((fitted.concentration - truth.concentration).abs() < 4 * error).all()
    assert ((fitted.loc - truth.loc).abs() < 4 * error / truth.concentration).all()


@pytest.mark.parametrize("size", [3, 5, 30])
def test_cauchy_fit_maximises_the_likelihood(size: int) -> None:
    torch.manual_seed(size)
    samples = cauchy(0.7, 1.0).sample((size,))

    def loss(parameters: np.ndarray) -> float:
        radius, loc = 1 / (1 + np.exp(-parameters[0])), parameters[1]
        return -float(cauchy(radius, loc).log_prob(samples).sum())

    best = scipy.optimize.minimize(loss, [0.0, 1.0], method="Nelder-Mead", tol=1e-10)
    fitted = WrappedCauchy.fit(samples)
    assert -fitted.log_prob(samples).sum() <= best.fun + 1e-8
    np.testing.assert_allclose(fitted.concentration, 1 / (1 + np.exp(-best.x[0])), atol=1e-5)


def test_cauchy_fit_is_batched() -> None:
    torch.manual_seed(0)
    samples = cauchy(0.5).sample((2, 3, 20))
    fitted = WrappedCauchy.fit(samples)
    assert fitted.batch_shape == (2, 3)
    alone = WrappedCauchy.fit(samples[1, 2])
    torch.testing.assert_close(fitted.concentration[1, 2], alone.concentration)


def normal(concentration: float) -> WrappedNormal:
    return WrappedNormal(torch.tensor(concentration, dtype=torch.float64))


@pytest.mark.parametrize("rho", [0.0, 1e-8, 0.02, 0.0432, 0.0433, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("angle", [0.0, 0.7, 2.0, 3.14])
def test_normal_density_is_a_theta_function(rho: float, angle: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        expected = mpmath.log(mpmath.jtheta(3, mpmath.mpf(angle) / 2, rho) / (2 * mpmath.pi))
    log_prob = normal(rho).log_prob(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(log_prob, float(expected), rtol=1e-14)


@pytest.mark.parametrize("rho", [0.9, 0.999, 1 - 1e-8, 1 - 1e-14])
@pytest.mark.parametrize("angle", [0.0, 1e-6, 1.0, 3.0, 3.14159])
def test_normal_log_density_far_in_the_tail(rho: float, angle: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        variance = -2 * mpmath.log(mpmath.mpf(rho))
        images = [mpmath.mpf(angle) + 2 * mpmath.pi * k for k in (-1, 0, 1)]
        largest = max(-(image**2) for image in images) / (2 * variance)
        others = sum(mpmath.exp(-(image**2) / (2 * variance) - largest) for image in images)
        expected = largest + mpmath.log(others) - mpmath.log(2 * mpmath.pi * variance) / 2
    log_prob = normal(rho).log_prob(torch.tensor(angle, dtype=torch.float64))
    np.testing.assert_allclose(log_prob, float(expected), rtol=1e-14)


def test_both_forms_of_the_normal_meet() -> None:
    border = float(np.exp(-np.pi))
    angles = torch.linspace(-3, 3, 13, dtype=torch.float64)
    below, above = normal(border * (1 - 1e-14)), normal(border * (1 + 1e-14))
    torch.testing.assert_close(below.log_prob(angles), above.log_prob(angles), rtol=0, atol=1e-14)
    torch.testing.assert_close(below.cdf(angles), above.cdf(angles), rtol=0, atol=1e-14)


@pytest.mark.parametrize("rho", [0.0, 1e-300, 1e-3, 0.9, 1 - 1e-15])
def test_gradients_of_the_normal_are_finite(rho: float) -> None:
    concentration = torch.tensor(rho, dtype=torch.float64, requires_grad=True)
    distribution = WrappedNormal(concentration)
    angle = torch.tensor(1e-9, dtype=torch.float64)
    total = distribution.log_prob(angle) + distribution.cdf(angle)
    (gradient,) = torch.autograd.grad(total, concentration)
    assert gradient.isfinite()


def test_normal_is_uniform_at_zero() -> None:
    angles = torch.linspace(-3, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(
        normal(0.0).prob(angles), torch.full_like(angles, 1 / (2 * torch.pi)), rtol=1e-15, atol=0
    )
    torch.testing.assert_close(normal(0.0).cdf(angles), (angles + torch.pi) / (2 * torch.pi))


def test_normal_fit_recovers_the_parameters() -> None:
    torch.manual_seed(0)
    rho = torch.tensor([0.2, 0.8, 0.999], dtype=torch.float64)
    truth = WrappedNormal(rho, torch.tensor([0.3, -3.0, 2.0], dtype=torch.float64))
    fitted = WrappedNormal.fit(truth.sample((1_000_000,)).mT)
    # var cos(θ − μ) = (1 + α₂)/2 − α₁², var sin(θ − μ) = (1 − α₂)/2
    error = ((1 + rho**4) / 2 - rho**2).sqrt() / 1e3
    assert ((fitted.concentration - rho).abs() < 4 * error).all()
    assert ((fitted.loc - truth.loc).abs() < 4 * ((1 - rho**4) / 2).sqrt() / rho / 1e3).all()

import math

import pytest
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

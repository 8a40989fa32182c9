"""The least-square error against quadrature, and Theorem 3 against an independent search."""

import math

import numpy as np
import pytest
import scipy.optimize
import torch
from torch.distributions import Categorical

from wcdas.circular import (
    CircularDistribution,
    Mixture,
    VonMises,
    WrappedCauchy,
    WrappedNormal,
    least_square_error,
)

GRID = torch.arange(-8192, 8192, dtype=torch.float64) * (math.pi / 8192)


def test_is_the_integral_of_the_squared_difference() -> None:
    cauchy = WrappedCauchy(torch.tensor(0.9, dtype=torch.float64), 0.5)
    kernels = WrappedNormal(torch.tensor([0.2, 0.8], dtype=torch.float64), 1.0)
    mixture = Mixture(Categorical(torch.ones(2, dtype=torch.float64)), kernels)
    vonmises = VonMises(torch.tensor(5.0, dtype=torch.float64), -2.0)
    for fit, target in ((cauchy, mixture), (vonmises, cauchy), (mixture, vonmises)):
        expected = (fit.prob(GRID) - target.prob(GRID)).square().mean() * 2 * math.pi
        torch.testing.assert_close(least_square_error(fit, target), expected)


def test_takes_cosine_moments() -> None:
    fit, target = WrappedCauchy(torch.tensor([0.3, 0.6])), WrappedCauchy(0.5)
    moments = target.cosine_moment(torch.arange(1, 101))
    torch.testing.assert_close(least_square_error(fit, moments), least_square_error(fit, target))


@pytest.mark.parametrize(
    ("family", "power", "error"), [(WrappedCauchy, 1, 0.00085284), (WrappedNormal, 2, 0.00933478)]
)
def test_fit_of_concentrations_spread_evenly(
    family: type[CircularDistribution], power: int, error: float
) -> None:
    # Theorem 3: ρ_m uniform on [0, 1) gives α_n = 1/(n² + 1).
    n = np.arange(1, 2001)
    moments = 1 / (n**2 + 1)

    def delta(rho: float) -> float:
        return float(((rho ** (n**power) - moments) ** 2).sum() / np.pi)

    best = scipy.optimize.minimize_scalar(
        delta, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
    )
    fitted = family.fit_moments(torch.as_tensor(moments))
    np.testing.assert_allclose(fitted.concentration, best.x, atol=1e-6)
    np.testing.assert_allclose(least_square_error(fitted, torch.as_tensor(moments)), best.fun)
    np.testing.assert_allclose(best.fun, error, rtol=1e-5)


def test_wrapped_cauchy_fits_evenly_spread_concentrations_better() -> None:
    n = torch.arange(1, 2001, dtype=torch.float64)
    moments = 1 / (n.square() + 1)
    cauchy = least_square_error(WrappedCauchy.fit_moments(moments), moments)
    normal = least_square_error(WrappedNormal.fit_moments(moments), moments)
    assert 10 < normal / cauchy < 12


def test_fit_finds_the_lower_of_two_valleys() -> None:
    # A broad part and a narrow one, each a valley of its own; batched with the reverse.
    n = torch.arange(1, 3001, dtype=torch.float64)
    broad, narrow = 0.1 ** (n**2), 0.9999 ** (n**2)
    for share in (0.9, 0.5, 0.1):
        moments = share * broad + (1 - share) * narrow
        fitted = WrappedNormal.fit_moments(torch.stack([moments, broad]))
        errors = torch.stack(
            [
                least_square_error(WrappedNormal(rho), moments)
                for rho in 1 - torch.logspace(-6, 0, 400, dtype=torch.float64)
            ]
        )
        assert least_square_error(fitted, moments)[0] <= errors.min()
        torch.testing.assert_close(fitted.concentration[1], n.new_tensor(0.1))


def test_float32_in_float32_out() -> None:
    fitted = WrappedCauchy.fit_moments(torch.tensor([0.5, 0.25, 0.125]))
    torch.testing.assert_close(fitted.concentration, torch.tensor(0.5))

"""Theorem 3 in two ways that share no code with it, nor with each other.

For ρ uniform on [0, 1) the sum Σ cos nθ/(n² + 1) has a closed form, so that the mixture is
f(θ) = cosh(π − |θ|) / (2 sinh π).
"""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import torch

from wcdas.paper import Finding, Verdict
from wcdas.paper.circle import angles
from wcdas.paper.theorem_2 import uniform_moments
from wcdas.paper.theorem_3 import simulated_density

CAUCHY, NORMAL = 8.528e-4, 9.335e-3


def mixture(angle: np.ndarray) -> np.ndarray:
    return np.cosh(np.pi - np.abs(angle)) / (2 * np.sinh(np.pi))


def cauchy(rho: float, angle: np.ndarray) -> np.ndarray:
    return (1 - rho**2) / (2 * np.pi * (1 + rho**2 - 2 * rho * np.cos(angle)))


def normal(rho: float, angle: np.ndarray) -> np.ndarray:
    variance = -2 * math.log(rho)
    turns = angle + 2 * np.pi * np.arange(-6, 7)
    return np.exp(-(turns**2) / (2 * variance)).sum() / math.sqrt(2 * np.pi * variance)


def by_densities(density) -> float:
    """The least ∫(f − f_mixed)² dθ by adaptive quadrature."""

    def error(rho: float) -> float:
        half = scipy.integrate.quad(lambda t: (density(rho, t) - mixture(t)) ** 2, 0, np.pi)
        return 2 * half[0]

    return float(scipy.optimize.minimize_scalar(error, bounds=(0.2, 0.9), method="bounded").fun)


def by_sums(power: int) -> float:
    """The least (1/π) Σ(ρ^{n^power} − 1/(n² + 1))² by mpmath."""

    def error(rho: float) -> float:
        terms = (
            (mpmath.mpf(rho) ** (n**power) - mpmath.mpf(1) / (n * n + 1)) ** 2
            for n in range(1, 200)
        )
        tail = mpmath.zeta(4, 200)  # Σ 1/n⁴ ≈ Σ 1/(n² + 1)² where ρ^n is nothing
        return float((mpmath.fsum(terms) + tail) / mpmath.pi)

    found = scipy.optimize.minimize_scalar(error, bounds=(0.2, 0.9), method="bounded")
    return float(found.fun)


def test_two_errors_and_their_ratio(found: Callable[[str], Finding]) -> None:
    finding = found("theorem-3")
    assert finding.verdict == Verdict.HOLDS
    for of_cauchy, of_normal in (
        (by_densities(cauchy), by_densities(normal)),
        (by_sums(1), by_sums(2)),
        tuple(finding.numbers[f"Δ of wrapped {f}, exact limit"] for f in ("Cauchy", "Normal")),
        tuple(finding.numbers[f"Δ of wrapped {f}, simulation"] for f in ("Cauchy", "Normal")),
    ):
        assert f"{of_cauchy:.2e}" == f"{CAUCHY:.2e}" == "8.53e-04"
        assert f"{of_normal:.2e}" == "9.33e-03"
        assert f"{of_normal / of_cauchy:.1f}" == "10.9"


def test_simulated_mixture_is_the_closed_form() -> None:
    theta = angles().numpy()
    away = np.abs(theta) > 0.01  # at 0 the mixture has an edge, which few narrow kernels round off
    np.testing.assert_allclose(simulated_density().numpy()[away], mixture(theta)[away], rtol=2e-3)


def test_moments_are_those_of_draws() -> None:
    rho = np.random.default_rng(0).uniform(0, 1, 400_000)
    drawn = [float((rho ** (n * n)).mean()) for n in (1, 2, 3)]
    np.testing.assert_allclose(uniform_moments(3).numpy(), drawn, rtol=0.01)


def test_printed_argument_is_about_other_numbers() -> None:
    moments = 1 / (torch.arange(1, 200_001, dtype=torch.float64).square() + 1)
    n = torch.arange(1, 200_001, dtype=torch.float64)
    for power in (1, 2):
        mean = (moments ** (1 / n**power)).mean()
        assert (mean - 0.5) ** 2 == pytest.approx(0.25, abs=1e-3)  # the same for both families

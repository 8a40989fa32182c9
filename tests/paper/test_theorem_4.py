"""Theorem 4 against plain NumPy and mpmath."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from wcdas.paper import Finding, Verdict
from wcdas.paper.theorem_4 import (
    largest_slope,
    safe_angle,
    share_of_pairs,
    slope,
    smallest_slope,
    threshold,
)

Found = Callable[[str], Finding]
Changed = Callable[..., Finding]


def density(rho: float, angle: np.ndarray | float) -> np.ndarray:
    return (1 - rho**2) / (2 * np.pi * (1 + rho**2 - 2 * rho * np.cos(angle)))


def test_threshold_is_the_root_of_a_cubic() -> None:
    # π(1 − ρ)³ − ρ² − ρ = 0
    pi = mpmath.pi
    roots = mpmath.polyroots([-pi, 3 * pi - 1, -3 * pi - 1, pi])
    (real,) = [root for root in roots if abs(mpmath.im(root)) < 1e-10]
    assert threshold() == pytest.approx(float(mpmath.re(real)), abs=1e-12)
    assert f"{threshold():.5f}" == "0.42332"


def test_counterexample(found: Found) -> None:
    finding = found("theorem-4")
    assert finding.verdict == Verdict.REFUTED
    numbers = finding.numbers
    rho = numbers["pair: ρ"]
    one, other = (math.radians(numbers[f"pair: θ_{c} in degrees"]) for c in "jk")
    assert threshold() < rho < 1
    assert math.cos(one) > math.cos(other)
    margin = density(rho, one) - density(rho, other)
    assert margin == pytest.approx(numbers["pair: margin of f"])
    assert abs(margin) < math.cos(one) - math.cos(other)


def test_slope_is_exact_and_between_its_bounds() -> None:
    angle = np.linspace(0, np.pi, 50)
    one, other = (grid.ravel() for grid in np.meshgrid(angle, angle))
    for rho in (0.1, 0.42332, 0.9):
        exact = slope(rho, one, other)
        np.testing.assert_allclose(
            density(rho, one) - density(rho, other),
            exact * (np.cos(one) - np.cos(other)),
            atol=1e-12 * density(rho, 0.0),
        )
        assert exact.max() == pytest.approx(float(largest_slope(rho)))
        assert exact.min() == pytest.approx(float(smallest_slope(rho)))


@pytest.mark.parametrize("rho", [0.5, 0.7, 0.95])
def test_region_of_angles(rho: float) -> None:
    angle = safe_angle(rho)

    def larger(one: float, other: float) -> bool:
        return density(rho, one) - density(rho, other) > math.cos(one) - math.cos(other)

    assert all(larger(angle - step, angle - step / 2) for step in (0.001, 0.01, 0.1))
    assert not larger(angle + 0.001, angle + 0.002)
    random = np.random.default_rng(0)
    one, other = np.sort(random.uniform(0, np.pi, (2, 200_000)), axis=0)
    share = np.mean(density(rho, one) - density(rho, other) > np.cos(one) - np.cos(other))
    assert share_of_pairs(rho) == pytest.approx(share, abs=0.003)


def test_verdict_follows_the_angles(changed: Changed) -> None:
    def verdict(largest_angle: float, *concentrations: float) -> Verdict:
        others = {"LARGEST_ANGLE": largest_angle, "CONCENTRATIONS": concentrations}
        return changed("theorem-4", **others).verdict

    assert verdict(25, 0.5, 0.6, 0.7) == Verdict.HOLDS
    assert verdict(35, 0.5, 0.6, 0.7) == Verdict.REFUTED
    assert verdict(25, 0.4) == Verdict.REFUTED


def test_verdict_follows_the_scale(found: Found, changed: Changed) -> None:
    for scale, verdict in ((250.0, Verdict.HOLDS), (100.0, Verdict.REFUTED)):
        others = {"SCALE": scale, "CONCENTRATIONS": (0.5, 0.7, 0.9)}
        assert changed("theorem-4", **others).verdict == verdict
    numbers = found("theorem-4").numbers
    enough = numbers["ρ up to which s = 250 is enough"]
    assert 250 * float(smallest_slope(enough)) == pytest.approx(1)
    every_rho = np.linspace(0.001, 0.999, 9999)
    least = 1 / smallest_slope(every_rho).max()
    assert numbers["smallest s for any two angles"] == pytest.approx(least, rel=1e-6)


def test_class_wise_concentrations_can_turn_the_sign(found: Found) -> None:
    numbers = found("theorem-4").numbers
    nearer, farther = density(0.9, math.radians(45)), density(0.5, math.radians(50))
    assert numbers["f at 45° with ρ = 0.9"] == pytest.approx(nearer)
    assert numbers["f at 50° with ρ = 0.5"] == pytest.approx(farther)
    assert nearer < farther

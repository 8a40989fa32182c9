import math

import numpy as np
import pytest
import torch

from wcdas.paper import corollary_1_1
from wcdas.paper.circle import angles
from wcdas.paper.claim import Setting, Verdict
from wcdas.paper.theorem_1 import check, check_5, check_21, cost, relative_error, scattered


def test_verdict_follows_the_centres(setting: Setting) -> None:
    assert check(setting).verdict == Verdict.HOLDS
    assert check(setting, centre=0.3).verdict == Verdict.REFUTED


def test_expected_mixture_is_that_of_draws() -> None:
    random = np.random.default_rng(0)
    centres, noise = random.normal(0, 0.4, 400_000), random.normal(size=400_000)
    draws = np.exp(1j * (centres + math.sqrt(-2 * math.log(0.8)) * noise))
    density = scattered(torch.tensor([0.8], dtype=torch.float64), 0.4).numpy()
    theta = angles(512).numpy()
    for n in (1, 2, 3):
        moment = (density * np.cos(n * theta)).mean() * 2 * np.pi
        assert moment == pytest.approx((draws**n).mean().real, abs=0.005)
        assert moment == pytest.approx((0.8 * math.exp(-0.08)) ** (n * n), rel=1e-9)


def test_cost_of_one_kernel_is_the_relative_error() -> None:
    for rho, spread in ((0.5, 0.3), (0.9, 0.1)):
        by_quadrature = relative_error(torch.tensor([rho], dtype=torch.float64), spread)
        by_moments = cost(rho, torch.tensor([spread], dtype=torch.float64))
        assert float(by_moments) == pytest.approx(by_quadrature, rel=1e-6)


def test_equals_sign_needs_a_correction(setting: Setting) -> None:
    assert check_21(setting).verdict == Verdict.CORRECTED
    assert check_21(setting, spread=1e-9).verdict == Verdict.HOLDS
    assert check_5(setting).verdict == Verdict.HOLDS
    assert check_5(setting, spread=0.5).verdict == Verdict.REFUTED


def test_corollary_follows_centre_and_weights(setting: Setting) -> None:
    assert corollary_1_1.check(setting).verdict == Verdict.HOLDS
    assert corollary_1_1.check(setting, centre=0.4).verdict == Verdict.CORRECTED
    unequal = corollary_1_1.check(setting, weights=(4.0, 1.0, 1.0, 1.0))
    assert unequal.verdict == Verdict.REFUTED
    assert corollary_1_1.check_series(setting, power=1).verdict == Verdict.REFUTED

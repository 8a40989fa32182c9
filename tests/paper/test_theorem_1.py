"""Theorem 1 against draws, and its two ways to the error against each other."""

import math

import numpy as np
import pytest
import torch

from wcdas.paper.theorem_1 import THETA, cost, relative_error, scattered


def test_expected_mixture_is_that_of_draws() -> None:
    random = np.random.default_rng(0)
    centres, noise = random.normal(0, 0.4, 400_000), random.normal(size=400_000)
    draws = np.exp(1j * (centres + math.sqrt(-2 * math.log(0.8)) * noise))
    density = scattered(torch.tensor([0.8], dtype=torch.float64), 0.4).numpy()
    for n in (1, 2, 3):
        moment = (density * np.cos(n * THETA.numpy())).mean() * 2 * np.pi
        assert moment == pytest.approx((draws**n).mean().real, abs=0.005)
        assert moment == pytest.approx((0.8 * math.exp(-0.08)) ** (n * n), rel=1e-9)


def test_cost_of_one_kernel_is_the_relative_error() -> None:
    for rho, spread in ((0.5, 0.3), (0.9, 0.1)):
        by_quadrature = relative_error(torch.tensor([rho], dtype=torch.float64), spread)
        by_moments = cost(rho, torch.tensor([spread], dtype=torch.float64))
        assert float(by_moments) == pytest.approx(by_quadrature, rel=1e-6)

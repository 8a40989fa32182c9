"""Drawn figures: what they show is right, and their images are whole."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import torch
from PIL import Image

from wcdas.paper import Finding, Verdict
from wcdas.paper.circle import CAUCHY_AND_NORMAL
from wcdas.paper.head import gradient
from wcdas.paper.theorem_2 import smallest_error
from wcdas.paper.theorem_3 import mixture_moments, preferred

Found = Callable[[str], Finding]


@pytest.mark.slow
def test_figure_2_follows_the_rule(found: Found, changed: Callable[..., Finding]) -> None:
    finding = found("figure-2")
    assert finding.verdict == Verdict.CORRECTED
    assert finding.numbers["cells that change with the number of terms"] == 0

    def corrected(mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        return torch.where(spread < 0.15, mean > 0.85, (spread > 0.25) | (mean > 0.55))

    assert changed("figure-2", printed_rule=corrected).verdict == Verdict.HOLDS
    reversed_rule = changed("figure-2", printed_rule=lambda mean, spread: spread < 0.15)
    assert reversed_rule.verdict == Verdict.REFUTED


@pytest.mark.parametrize(("mean", "spread"), [(0.5, 0.1), (0.5, 0.2), (0.6, 0.2), (0.4, 0.6)])
def test_figure_2_against_draws(mean: float, spread: float) -> None:
    rho = np.clip(np.random.default_rng(0).normal(mean, spread, 200_000), 0, 1)
    n = np.arange(1, 31)
    moments = np.array([(rho ** (k * k)).mean() for k in n])
    cell = round(10 * spread) - 1, round(10 * mean) - 1
    exact = mixture_moments(30)[cell]
    np.testing.assert_allclose(exact, moments, atol=0.003)

    def least(power: int) -> float:
        grid = np.linspace(0, 0.999, 2000)
        squares = ((grid[:, None] ** (n**power) - exact.numpy()) ** 2).sum(1)
        near = grid[squares.argmin()]
        found = scipy.optimize.minimize_scalar(
            lambda r: float(((r ** (n**power) - exact.numpy()) ** 2).sum()),
            bounds=(max(0, near - 0.001), min(1, near + 0.001)),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return float(found.fun) / np.pi

    errors = [float(smallest_error(family, exact)) for family in CAUCHY_AND_NORMAL]
    np.testing.assert_allclose(errors, [least(1), least(2)], rtol=1e-6)
    assert bool(preferred(mixture_moments(30))[cell]) == (least(1) < least(2))


def test_gradient_is_the_difference_quotient() -> None:
    rho, angle, step = torch.tensor([0.3, 0.8]).double(), torch.tensor([0.5, 2.0]).double(), 1e-6

    def density(r: torch.Tensor) -> torch.Tensor:
        return (1 - r**2) / (2 * np.pi * (1 + r**2 - 2 * r * torch.cos(angle)))

    quotient = (density(rho + step) - density(rho - step)) / (2 * step)
    torch.testing.assert_close(gradient(rho, angle), quotient, rtol=1e-7, atol=1e-9)


NAMES = ["figure-1", "figure-2", "figure-3", "figure-6", "theorem-1", "theorem-2", "theorem-4"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_off(name: str, found: Found) -> None:
    (svg,) = found(name).figures
    assert svg.read_text("utf-8").rstrip().endswith("</svg>")
    image = np.asarray(Image.open(Path(svg).with_suffix(".png")).convert("L"))
    edges = [image[:4], image[-4:], image[:, :4], image[:, -4:]]
    assert all((edge == 255).all() for edge in edges)
    assert image.std() > 10

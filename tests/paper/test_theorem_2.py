from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import rankdata

from wcdas.circular import WrappedCauchy, WrappedNormal
from wcdas.paper import Finding, Verdict
from wcdas.paper.theorem_2 import APPENDIX, MAIN_TEXT, log_moments, spread, vanish_together

NAMES = {WrappedCauchy: "wrapped Cauchy", WrappedNormal: "wrapped Normal"}
OWN_ROOT = {WrappedCauchy: 1, WrappedNormal: 2}  # α_n is ρ^n, and ρ^(n²)


def classes() -> np.ndarray:
    """ρ_m of 55 classes, 500 evenly between every two of 0, 0.1 … 1."""
    middle = (np.arange(500) + 0.5) / 500
    edges = [(low / 10, high / 10) for low in range(11) for high in range(low + 1, 11)]
    return np.array([low + (high - low) * middle for low, high in edges])


def logs_by_numpy(terms: int) -> np.ndarray:
    """log α_n, with the largest kernel taken out of the sum, as ρ^(n²) falls below any float."""
    logs = np.log(classes())
    largest = logs.max(1)
    rest = [np.log(np.exp(n * n * (logs - largest[:, None])).mean(1)) for n in range(1, terms + 1)]
    return np.stack([n * n * largest + of for n, of in enumerate(rest, 1)], 1)


def least_error(power: int, moments: np.ndarray) -> float:
    """The least (1/π) Σ (ρ^(n^power) − α_n)², from a grid and then a search between its points."""
    n = np.arange(1, len(moments) + 1)

    def error(rho: float) -> float:
        return float(((rho ** (n**power) - moments) ** 2).sum() / np.pi)

    grid = np.linspace(0, 0.9999, 400)
    best = grid[int(np.argmin([error(rho) for rho in grid]))]
    near = (max(0.0, best - 0.005), min(1 - 1e-6, best + 0.005))
    found = minimize_scalar(error, bounds=near, method="bounded", options={"xatol": 1e-12})
    return float(found.fun)


def rank_correlation_by_numpy(power: int, own: int, terms: int) -> float:
    """Spearman's correlation of the least error of a family, whose own root is `own`, with the
    spread over n of α_n^(1/n^power)."""
    logs, n = logs_by_numpy(terms), np.arange(1, terms + 1)
    errors = [least_error(own, moments) for moments in np.exp(logs)]
    ranks = [rankdata(values) for values in (np.exp(logs / n**power).std(1), errors)]
    return float(np.corrcoef(*ranks)[0, 1])


def test_a_spread_is_zero_where_the_error_is_for_the_appendix_alone() -> None:
    assert all(vanish_together(*of) for of in APPENDIX.items())
    assert not any(vanish_together(*of) for of in MAIN_TEXT.items())


@pytest.mark.parametrize(("member", "other"), [(1, 2), (2, 1)])
def test_the_argument_in_fifty_digits(member: int, other: int) -> None:
    """α_n = 0.6^(n^member) has equal roots 1/n^member, the others differ, and no ρ^(n^other) has
    these moments: α_1 gives ρ = 0.6, and α_2 another."""
    with mpmath.workdps(50):
        rho = mpmath.mpf("0.6")
        moments = [rho ** (n**member) for n in range(1, 11)]
        own, others = (
            [alpha ** (mpmath.mpf(1) / n**power) for n, alpha in enumerate(moments, 1)]
            for power in (member, other)
        )
        assert max(abs(value - rho) for value in own) < mpmath.mpf("1e-48")
        assert max(others) - min(others) > 0.2
        assert abs(moments[0] ** (2**other) - moments[1]) > 0.2


def test_the_finding_says_what_the_argument_says(found: Callable[[str], Finding]) -> None:
    finding = found("theorem-2")
    assert finding.verdict == Verdict.CORRECTED
    assert "wrapped Normal with the root 1/n no, wrapped Cauchy with the root 1/n² no" in (
        finding.sentence
    )
    of_cauchy, of_normal = finding.tables[0].rows
    assert of_cauchy[1:3] == of_normal[3:5] == ("0", "0")
    assert all(float(cell) > 0.01 for cell in (*of_cauchy[3:5], *of_normal[1:3]))


@pytest.mark.parametrize("terms", [5, 10, 30, 100])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("family", OWN_ROOT)
def test_rank_correlations_by_numpy(
    family: type, power: int, terms: int, found: Callable[[str], Finding]
) -> None:
    exponent = {1: "", 2: "²"}[power]
    name = f"rank correlation, {NAMES[family]} with 1/n{exponent}, {terms} orders"
    by_numpy = rank_correlation_by_numpy(power, OWN_ROOT[family], terms)
    assert found("theorem-2").numbers[name] == pytest.approx(by_numpy, abs=0.005)


def test_as_printed_the_correlation_turns_with_the_number_of_orders() -> None:
    """It is no ground for a verdict: negative with 5 orders of the wrapped Normal, and not with
    100."""
    few, many = (rank_correlation_by_numpy(1, 2, terms) for terms in (5, 100))
    assert few < -0.2
    assert many > 0.4


def test_moments_of_a_class_in_fifty_digits() -> None:
    """The class between 0 and 0.1, whose moments of order 100 no float can hold."""
    with mpmath.workdps(50):
        rho = [mpmath.mpf(2 * m + 1) / 10_000 for m in range(500)]
        exact = [mpmath.log(mpmath.fsum(r ** (n * n) for r in rho) / 500) for n in (1, 10, 100)]
    logs = log_moments(100)[0]
    np.testing.assert_allclose(logs[[0, 9, 99]], [float(value) for value in exact], rtol=1e-12)
    np.testing.assert_allclose(log_moments(100), logs_by_numpy(100), rtol=1e-9)


def test_spread_by_hand() -> None:
    rho = (np.arange(500) + 0.5) / 500  # the class between 0 and 1 is the tenth row
    moments = np.array([(rho ** (n * n)).mean() for n in range(1, 11)])
    by_hand = (moments ** (1 / np.arange(1, 11))).std()
    np.testing.assert_allclose(spread(log_moments(), 1)[9], by_hand)


def test_error_is_not_proportional_to_the_spread(changed: Callable[..., Finding]) -> None:
    for pairing in (MAIN_TEXT, APPENDIX):
        finding = changed("equation-9", MAIN_TEXT=pairing)
        assert finding.verdict == Verdict.REFUTED
        assert min(finding.numbers.values()) > 100
    assert torch.isfinite(log_moments(100)).all()

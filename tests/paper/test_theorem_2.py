from collections.abc import Callable

import numpy as np
import torch

from wcdas.circular import WrappedCauchy
from wcdas.paper import Finding, Verdict
from wcdas.paper.theorem_2 import (
    APPENDIX,
    MAIN_TEXT,
    log_moments,
    own_spread,
    rank_correlation,
    spread,
)


def test_roots_of_a_familys_own_members_are_constant() -> None:
    for family, power in APPENDIX.items():
        assert own_spread(family, power) < 1e-12
    for family, power in MAIN_TEXT.items():
        assert own_spread(family, power) > 0.1


def test_moments_and_spread_by_hand() -> None:
    rho = (np.arange(500) + 0.5) / 500  # the class between 0 and 1 is the tenth row
    moments = np.array([(rho ** (n * n)).mean() for n in range(1, 11)])
    logs = log_moments()
    np.testing.assert_allclose(logs[9].exp(), moments)
    by_hand = (moments ** (1 / np.arange(1, 11))).std()
    np.testing.assert_allclose(spread(logs, 1)[9], by_hand)


def test_rank_correlation_does_not_depend_on_the_number_of_orders() -> None:
    for family, power in APPENDIX.items():
        assert all(rank_correlation(family, power, terms) > 0.5 for terms in (5, 30))
    assert rank_correlation(WrappedCauchy, 2, 30) < 0


def test_error_is_not_proportional_to_the_spread(changed: Callable[..., Finding]) -> None:
    for pairing in (MAIN_TEXT, APPENDIX):
        finding = changed("equation-9", MAIN_TEXT=pairing)
        assert finding.verdict == Verdict.REFUTED
        assert min(finding.numbers.values()) > 100
    assert torch.isfinite(log_moments(100)).all()

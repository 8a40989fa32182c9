"""Every equation's verdict, and that it turns when an input of the check does."""

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from wcdas.circular import WrappedCauchy, WrappedNormal
from wcdas.paper import CLAIMS, algorithm_1, corollary_1_1
from wcdas.paper.claim import Finding, Setting, Verdict
from wcdas.paper.equations import (
    density,
    faulhaber,
    kernel,
    least_squares,
    margin_steps,
    mean_of_roots,
    mixture,
    softmax,
)

Found = Callable[[Callable[..., Finding]], Finding]
HOLDS, CORRECTED, REFUTED = Verdict.HOLDS, Verdict.CORRECTED, Verdict.REFUTED
TO_CORRECT = (16, 18, 19, 21, 27, 33, 37, 46)
REFUTED_ONES = (9, 11, 30, 31, 35, 36, 47)


@pytest.mark.parametrize("number", range(1, 52))
def test_verdict(number: int, found: Found) -> None:
    expected = HOLDS
    if number in TO_CORRECT:
        expected = CORRECTED
    elif number in REFUTED_ONES:
        expected = REFUTED
    finding = found(CLAIMS[f"equation-{number}"].check)
    assert finding.verdict == expected
    assert finding.sentence
    assert all(np.isfinite(value) for value in finding.numbers.values())


OWN = WrappedCauchy(torch.tensor(0.9, dtype=torch.float64)).cosine_moment(torch.arange(1, 4097))
OWN_NORMAL = WrappedNormal(torch.tensor(0.6).double()).cosine_moment(torch.arange(1, 11))
FLIPS = [
    (softmax.check_1, {"head": "linear"}, REFUTED),
    (softmax.check_2, {"head": "wcdas"}, REFUTED),
    (kernel.check_3, {"families": {1.0: WrappedNormal, 2.0: WrappedCauchy}}, REFUTED),
    (kernel.check_14, {"exponent": 1.5}, REFUTED),
    (kernel.check_15, {"sign": -1}, REFUTED),
    (kernel.check_16, {"own_centre": True}, HOLDS),
    (mixture.check_4, {"weights": (1.0, 2.0, 1.0, 1.0)}, REFUTED),
    (mixture.check_17, {"size": 0.5}, REFUTED),
    (mixture.check_18, {"factor": 1 / (2 * np.pi)}, HOLDS),
    (mixture.check_19, {"factor": 1 / (2 * np.pi)}, HOLDS),
    (mixture.check_20, {"mean": 0.2}, REFUTED),
    (corollary_1_1.check_23, {"power": 1}, REFUTED),
    (corollary_1_1.check_24, {"orders": 2}, REFUTED),
    (density.check_10, {"exponent": 2.0}, REFUTED),
    (density.check_12, {"factor": 1.0}, REFUTED),
    (density.check_13, {"start": 60.0}, REFUTED),
    (least_squares.check_7, {"families": (WrappedNormal, WrappedCauchy)}, REFUTED),
    (least_squares.check_8, {"terms": 1}, REFUTED),
    (least_squares.check_27, {"cosine": False}, HOLDS),
    (least_squares.check_28, {"factor": 1 / (2 * np.pi)}, REFUTED),
    (least_squares.check_29, {"powers": (2, 1)}, REFUTED),
    (mean_of_roots.check_30, {"moments": OWN}, HOLDS),
    (mean_of_roots.check_31, {"moments": OWN}, HOLDS),
    (mean_of_roots.check_32, {"sign": -1}, REFUTED),
    (mean_of_roots.check_33, {"shifted": False}, HOLDS),
    (mean_of_roots.check_35, {"moments": OWN[:10]}, HOLDS),
    (mean_of_roots.check_36, {"moments": OWN_NORMAL}, HOLDS),
    (faulhaber.check_37, {"last_is_one": False}, HOLDS),
    (faulhaber.check_38, {"half": 3}, REFUTED),
    (faulhaber.check_43, {"shift": 2}, REFUTED),
    (margin_steps.check_11, {"of_the_pair": True}, HOLDS),
    (margin_steps.check_46, {"bracket": True}, HOLDS),
    (margin_steps.check_47, {"smallest": True}, HOLDS),
    (margin_steps.check_49, {"power": 2}, REFUTED),
    (margin_steps.check_51, {"printed": 0.42333}, REFUTED),
    (algorithm_1.check, {"scale_in_softmax": True}, HOLDS),
]


@pytest.mark.parametrize(
    ("check", "changed", "verdict"), FLIPS, ids=[f"{c.__module__}.{c.__name__}" for c, *_ in FLIPS]
)
def test_verdict_turns(
    check: Callable[..., Finding],
    changed: dict[str, object],
    verdict: Verdict,
    setting: Setting,
    found: Found,
) -> None:
    assert found(check).verdict != verdict
    assert check(setting, **changed).verdict == verdict


@pytest.mark.parametrize(
    ("number", "formula"), [(40, faulhaber.printed_3), (41, faulhaber.printed_2)]
)
def test_printed_sums_are_told_apart(number: int, formula: object, setting: Setting) -> None:
    check: Callable[..., Finding] = CLAIMS[f"equation-{number}"].check
    assert check(setting, formula=formula).verdict == REFUTED


def test_bernoulli_numbers() -> None:
    expected = [Fraction(*mpmath.bernfrac(k)) for k in range(2, 20)]
    assert faulhaber.bernoulli(19)[2:] == expected


def test_algorithm_1(setting: Setting) -> None:
    finding = algorithm_1.check(setting)
    assert finding.verdict == CORRECTED
    # One class at the peak of the density, 99 at its trough, ρ = ½, no scale.
    f = np.array([0.75 / (2 * np.pi * (1.25 - np.cos(t))) for t in [0.0] + [np.pi] * 99])
    best = np.exp(f[0]) / np.exp(f).sum()
    assert finding.numbers["largest probability without s"] == pytest.approx(best)

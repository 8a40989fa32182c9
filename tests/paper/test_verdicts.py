"""The verdict on every equation, theorem and drawn figure, and that it turns when an input does."""

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from wcdas.circular import Mixture, WrappedCauchy, WrappedNormal
from wcdas.paper import CLAIMS, Finding, Verdict, theorem_1, theorem_2, theorem_3, theorem_4
from wcdas.paper.theorem_4 import slope, smallest_slope

HOLDS, CORRECTED, REFUTED = Verdict.HOLDS, Verdict.CORRECTED, Verdict.REFUTED
TO_CORRECT = (16, 18, 19, 21, 27, 33, 37, 46)
REFUTED_ONES = (9, 11, 30, 31, 35, 36, 47)


NUMBERS = sorted(int(name[9:]) for name in CLAIMS if name.startswith("equation-"))


@pytest.mark.parametrize("number", NUMBERS)
def test_verdict(number: int, found: Callable[[str], Finding]) -> None:
    expected = HOLDS
    if number in TO_CORRECT:
        expected = CORRECTED
    elif number in REFUTED_ONES:
        expected = REFUTED
    finding = found(f"equation-{number}")
    assert finding.verdict == expected
    assert finding.sentence
    assert all(np.isfinite(value) for value in finding.numbers.values())


def weighed(kernels: WrappedNormal) -> Mixture:
    """The class with the first kernel counted four times."""
    return Mixture(Categorical(torch.tensor([4.0, 1.0, 1.0, 1.0]).double()), kernels)


OWN = WrappedCauchy(torch.tensor(0.9, dtype=torch.float64)).cosine_moment(torch.arange(1, 4097))
OWN_NORMAL = WrappedNormal(torch.tensor(0.6).double()).cosine_moment(torch.arange(1, 11))
OF_THE_PAIR = slope(theorem_4.RHO.numpy(), theorem_4.ONE.numpy(), theorem_4.OTHER.numpy())
# What is changed in the module of each check, and the verdict that it then comes to.
CHANGES = [
    ("equation-1", {"HEAD": "wndas"}, REFUTED),
    ("equation-2", {"HEAD": "wcdas"}, REFUTED),
    ("equation-3", {"FAMILIES": {1.0: WrappedNormal, 2.0: WrappedCauchy}}, REFUTED),
    ("figure-1", {"CLASS": (0.6, 0.6)}, REFUTED),
    ("equation-4", {"mixed": weighed}, REFUTED),
    ("equation-5", {"SMALL": 0.5}, REFUTED),
    ("theorem-1", {"MEAN": 0.3}, REFUTED),
    ("equation-6", {"MEAN": 0.4}, CORRECTED),
    ("corollary-1.1", {"mixed": weighed}, REFUTED),
    ("equation-14", {"WrappedNormal": WrappedCauchy}, REFUTED),
    ("equation-15", {"waves": lambda m, sines, c: theorem_1.series(m)}, REFUTED),
    ("equation-16", {"printed_16": lambda centre: centre}, HOLDS),
    ("equation-17", {"SMALL": 0.5}, REFUTED),
    ("equation-18", {"FACTOR": 1 / (2 * np.pi)}, HOLDS),
    ("equation-19", {"FACTOR": 1 / (2 * np.pi)}, HOLDS),
    ("equation-20", {"MEAN": 0.2}, REFUTED),
    ("equation-21", {"LARGE": 1e-9}, HOLDS),
    ("equation-22", {"POWER": 1}, REFUTED),
    ("equation-23", {"POWER": 1}, REFUTED),
    ("equation-24", {"N": torch.arange(1, 3)}, REFUTED),
    ("equation-26", {"mixed": weighed}, REFUTED),
    ("equation-7", {"integral": lambda values: values.mean(-1)}, REFUTED),
    ("equation-8", {"N": torch.arange(1, 2)}, REFUTED),
    ("equation-9", {"smallest_error": lambda f, m: theorem_2.spread(m.log(), POWER[f])}, HOLDS),
    ("theorem-2", {"MAIN_TEXT": theorem_2.APPENDIX}, HOLDS),
    ("theorem-2", {"MAIN_TEXT": {WrappedCauchy: 1, WrappedNormal: 1}}, REFUTED),
    ("equation-27", {"SOME_ANGLES": torch.zeros(64)}, HOLDS),
    ("equation-28", {"integral": lambda values: values.mean(-1)}, REFUTED),
    ("equation-29", {"APPENDIX": {WrappedCauchy: 2, WrappedNormal: 1}}, REFUTED),
    ("equation-30", {"uniform_moments": lambda: OWN}, HOLDS),
    ("equation-31", {"uniform_moments": lambda: OWN}, HOLDS),
    ("equation-32", {"powers_between": lambda x, a, n: x**n + a**n}, REFUTED),
    ("equation-33", {"printed_33": lambda a: a}, HOLDS),
    ("equation-34", {"roots": lambda moments: moments}, REFUTED),
    ("equation-35", {"uniform_moments": lambda terms: OWN[:terms]}, HOLDS),
    ("equation-36", {"uniform_moments": lambda terms: OWN_NORMAL}, HOLDS),
    ("theorem-3", {"BETTER": WrappedNormal, "WORSE": WrappedCauchy}, REFUTED),
    ("theorem-3", {"uniform_moments": lambda terms: OWN[:terms]}, REFUTED),  # not the simulation
    ("equation-37", {"LEFT_OUT": 1}, HOLDS),
    ("equation-38", {"faulhaber": lambda n, p: Fraction(n ** (p + 1), p + 1)}, REFUTED),
    ("equation-39", {"PRINTED": {1: ("1/2", "1/3")}}, REFUTED),
    ("equation-40", {"PRINTED": {2: theorem_3.PRINTED[3]}}, REFUTED),
    ("equation-41", {"PRINTED": {3: theorem_3.PRINTED[2]}}, REFUTED),
    ("equation-43", {"general": lambda size, order: Fraction(1, order**2 + 2)}, REFUTED),
    ("equation-44", {"BETTER": WrappedNormal, "WORSE": WrappedCauchy}, REFUTED),
    ("equation-10", {"EXPONENT": 2.0}, REFUTED),
    ("equation-11", {"largest_slope": lambda rho: torch.as_tensor(OF_THE_PAIR)}, HOLDS),
    ("equation-12", {"WrappedCauchy": WrappedNormal}, REFUTED),
    ("figure-3", {"NEAR": 40.0}, REFUTED),
    ("figure-3", {"FAR": 5.0}, REFUTED),
    ("equation-13", {"START": 60.0}, REFUTED),
    ("algorithm-1", {"PRINTED_SCALE": 30.0}, HOLDS),
    ("equation-45", {"denominator": lambda angle: 2 - torch.cos(angle)}, REFUTED),
    ("equation-46", {"RHO": torch.tensor([[0.5]]).double()}, HOLDS),  # 2ρ = 1 needs no bracket
    ("equation-47", {"largest_slope": smallest_slope}, HOLDS),
    ("equation-48", {"denominator": lambda angle: 2 - torch.cos(angle)}, REFUTED),
    ("equation-49", {"largest_slope": smallest_slope}, REFUTED),
    ("equation-50", {"OTHER": theorem_4.ONE, "largest_slope": smallest_slope}, REFUTED),
    ("equation-51", {"PRINTED_THRESHOLD": 0.42333}, REFUTED),
    ("theorem-4", {"SCALE": 1e6}, HOLDS),
    ("figure-6", {"PAIR": (0.0, 0.0)}, HOLDS),
]
POWER = theorem_2.MAIN_TEXT


@pytest.mark.parametrize(("name", "others", "verdict"), CHANGES, ids=[c[0] for c in CHANGES])
def test_verdict_turns(
    name: str,
    others: dict[str, object],
    verdict: Verdict,
    found: Callable[[str], Finding],
    changed: Callable[..., Finding],
) -> None:
    assert found(name).verdict != verdict
    assert changed(name, **others).verdict == verdict


def test_every_verdict_of_the_theory_turns() -> None:
    theory = ("equation", "theorem", "corollary", "algorithm", "figure-1", "figure-3", "figure-6")
    turning = {name for name, *_ in CHANGES}
    assert turning == {name for name in CLAIMS if name.startswith(theory)}


def test_bernoulli_numbers() -> None:
    expected = [Fraction(*mpmath.bernfrac(k)) for k in range(2, 20)]
    assert theorem_3.bernoulli(19)[2:] == expected


def test_algorithm_1(found: Callable[[str], Finding]) -> None:
    finding = found("algorithm-1")
    assert finding.verdict == CORRECTED
    # One class at the peak of the density, 99 at its trough, ρ = ½, no scale.
    f = np.array([0.75 / (2 * np.pi * (1.25 - np.cos(t))) for t in [0.0] + [np.pi] * 99])
    best = np.exp(f[0]) / np.exp(f).sum()
    assert finding.numbers["largest probability without s"] == pytest.approx(best)

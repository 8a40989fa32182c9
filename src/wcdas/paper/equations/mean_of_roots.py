"""Equations 30 to 36: the mean of the roots α_n^{1/n} as the best ρ, and what is built on it."""

import math

import torch
from torch import Tensor

from wcdas.circular import CircularDistribution, WrappedCauchy, WrappedNormal, least_square_error
from wcdas.paper.claim import Claim, Finding, Setting, Table, judge
from wcdas.paper.identity import TOLERANCE_TEXT, gap, identity
from wcdas.paper.theorem_3 import uniform_moments

TERMS = (5, 10, 100, 1000, 4096)
FEW = 10


def roots(moments: Tensor, power: int = 1) -> Tensor:
    """α_n^{1/n^power}: power 1 undoes ρ^n, power 2 undoes ρ^{n²}."""
    n = torch.arange(1, moments.shape[-1] + 1, dtype=torch.float64)
    return moments ** (1 / n**power)


def check_30(setting: Setting, moments: Tensor | None = None) -> Finding:
    """The mean of the first N roots beside the exact minimiser; ρ_m uniform by default."""
    moments = uniform_moments() if moments is None else moments
    exact = float(WrappedCauchy.fit_moments(moments).concentration)
    smallest = float(least_square_error(WrappedCauchy.fit_moments(moments), moments))
    rows, means = [], {}
    for terms in TERMS:
        mean = means[terms] = float(roots(moments[:terms]).mean())
        error = float(least_square_error(WrappedCauchy(torch.tensor(mean).double()), moments))
        cells = (f"{terms:,}", f"{mean:.4f}", f"{mean - exact:+.4f}", f"{error:.3e}")
        rows.append((*cells, f"{error / smallest:.3g}" if smallest > 1e-12 else ""))
    worst = max(abs(mean - exact) for mean in means.values())
    sentence = (
        f"The exact ρ_min is {exact:.5f}. The mean of the roots depends on how many are taken, "
        f"{means[TERMS[0]]:.3f} of {TERMS[0]} to {means[TERMS[-1]]:.3f} of {TERMS[-1]:,}, and is "
        f"up to {worst:.3f} away."
    )
    table = Table(
        f"Exact: ρ = {exact:.6f}, Δ = {smallest:.4e}",
        ("roots taken", "their mean", "minus the exact ρ", "Δ at the mean", "÷ smallest Δ"),
        tuple(rows),
    )
    numbers = {"exact ρ_min": exact, "largest distance": worst}
    numbers |= {f"mean of {terms} roots": mean for terms, mean in means.items()}
    return Finding(judge(worst < 1e-3), sentence, numbers, tables=(table,))


def check_31(setting: Setting, moments: Tensor | None = None) -> Finding:
    """Δ at the mean of the roots against the smallest Δ."""
    moments = uniform_moments() if moments is None else moments
    smallest = float(least_square_error(WrappedCauchy.fit_moments(moments), moments))
    errors = {
        terms: float(least_square_error(WrappedCauchy(roots(moments[:terms]).mean()), moments))
        for terms in TERMS
    }
    as_good = all(e <= smallest * 1.01 + 1e-12 for e in errors.values())
    return Finding(
        judge(as_good),
        f"The smallest Δ is {smallest:.3e}; at the mean of {TERMS[0]} roots it is "
        f"{errors[TERMS[0]]:.3e}, at that of {TERMS[-1]:,} roots {errors[TERMS[-1]]:.3e}.",
        {"smallest Δ": smallest} | {f"Δ at the mean of {t} roots": e for t, e in errors.items()},
    )


def check_32(setting: Setting, sign: int = 1) -> Finding:
    """xⁿ − aⁿ = (x − a) Σ a^{n−1−k} x^k in whole numbers, n up to 12."""
    cases = [(x, a, n) for x in range(-4, 5) for a in range(-4, 5) for n in range(1, 13)]
    right = sum(
        x**n - a**n == (x - sign * a) * sum(a ** (n - 1 - k) * x**k for k in range(n))
        for x, a, n in cases
    )
    return Finding(
        judge(right == len(cases)),
        f"True in {right} of {len(cases)} cases of whole numbers. (It is the factorisation of a "
        "difference of powers, not the binomial theorem.)",
        {"cases": len(cases), "true": right},
    )


def factorised(mean: Tensor, of_order: Tensor, order: Tensor) -> Tensor:
    """Σ_n (ā − a_n)² (Σ_k a_n^{n−1−k} ā^k)², k = 0 … n − 1."""
    total = torch.zeros((), dtype=torch.float64)
    for n, a in zip(order.tolist(), of_order, strict=True):
        k = torch.arange(n)
        total = total + (mean - a).square() * (a ** (n - 1 - k) * mean**k).sum().square()
    return total


def _with_few_roots() -> tuple[Tensor, Tensor, Tensor]:
    order = torch.arange(1, FEW + 1)
    a = roots(uniform_moments(FEW))
    return a.mean(), a, order


def check_33(setting: Setting, shifted: bool = True) -> Finding:
    """The general term with a_{n−1} under n powers, as printed, or with a_n."""
    mean, a, order = _with_few_roots()
    plain = (mean**order - a**order).square().sum()
    used = torch.cat([a[:2], a[1:-1]]) if shifted else a
    return identity(
        factorised(mean, used, order),
        plain,
        f"Uniform ρ_m, {FEW} terms",
        factorised(mean, a, order),
        "With a_n instead of a_(n−1) in the n-th term",
    )


def check_34(setting: Setting, terms: int = FEW) -> Finding:
    """The factorised sum against Δ at the mean of the roots, over the same terms."""
    moments = uniform_moments(terms)
    a, order = roots(moments), torch.arange(1, terms + 1)
    direct = least_square_error(WrappedCauchy(a.mean()), moments)
    return identity(factorised(a.mean(), a, order) / math.pi, direct, f"Uniform ρ_m, {terms} terms")


def _first_term_alone(family: type[CircularDistribution], power: int, moments: Tensor) -> Finding:
    """(1/π)(mean root − α₁)², the first term of Δ at the mean root, against all of it."""
    mean = roots(moments, power).mean()
    first = (mean - moments[0]).square() / math.pi
    whole = least_square_error(family(mean), moments)
    smallest = float(least_square_error(family.fit_moments(moments), moments))
    kept = gap(first, whole) < 0.1 if whole > 1e-12 else True
    return Finding(
        judge(kept),
        f"With {len(moments)} roots the first term is {float(first):.3e}, the whole sum "
        f"{float(whole):.3e}, the smallest Δ {smallest:.3e}"
        + ("." if kept else ": the neglected terms are not small, and no term is the minimum."),
        {"first term": float(first), "whole sum": float(whole), "smallest Δ": smallest},
    )


def check_35(setting: Setting, moments: Tensor | None = None) -> Finding:
    """The first term of the sum against the whole sum, wrapped Cauchy; ρ_m uniform by default."""
    moments = uniform_moments(FEW) if moments is None else moments
    return _first_term_alone(WrappedCauchy, 1, moments)


def check_36(setting: Setting, moments: Tensor | None = None) -> Finding:
    """The first term of the sum against the whole sum, wrapped Normal; ρ_m uniform by default."""
    moments = uniform_moments(FEW) if moments is None else moments
    return _first_term_alone(WrappedNormal, 2, moments)


_PLACE = "Appendix A.3, Equation {}"
CLAIMS = (
    Claim(
        "equation-30",
        _PLACE.format(30),
        "The ρ with the least error is the mean over n in [1, ∞) of the roots α_mixed,n^(1/n).",
        "a second",
        check_30,
        "0.001 in ρ",
    ),
    Claim(
        "equation-31",
        _PLACE.format(31),
        "The least error is the error at the mean of the roots.",
        "a second",
        check_31,
        "1 %",
    ),
    Claim(
        "equation-32",
        _PLACE.format(32),
        "xⁿ − aⁿ = (x − a)(a^(n−1) + x a^(n−2) + … + x^(n−1)).",
        "a second",
        check_32,
        "exact",
    ),
    Claim(
        "equation-33",
        _PLACE.format(33),
        "Σ_n (āⁿ − a_nⁿ)² = (ā − a_1)² + (ā − a_2)²(ā + a_2)² + … + (ā − a_(n−1))²(…)².",
        "a second",
        check_33,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-34",
        _PLACE.format(34),
        "Equation 31 with every difference of powers factorised.",
        "a second",
        check_34,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-35",
        _PLACE.format(35),
        "For the wrapped Cauchy the terms n > 1 can be neglected: Δ ∼ (1/π)(mean of α_n^(1/n) − "
        "α_1)².",
        "a second",
        check_35,
        "10 % of the sum",
    ),
    Claim(
        "equation-36",
        _PLACE.format(36),
        "For the wrapped Normal likewise: Δ ∼ (1/π)(mean of α_n^(1/n²) − α_1)².",
        "a second",
        check_36,
        "10 % of the sum",
    ),
)

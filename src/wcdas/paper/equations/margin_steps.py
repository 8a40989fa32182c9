"""Equations 11 and 45 to 51: the steps of the proof of Theorem 4."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from wcdas.circular import WrappedCauchy
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.identity import TOLERANCE_TEXT, gap, identity
from wcdas.paper.margin import PRINTED_THRESHOLD, largest_slope, smallest_slope, threshold

RHO = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)[:, None]


def pairs() -> tuple[Tensor, Tensor]:
    """All pairs θ_1 < θ_2 of 61 angles."""
    angle = torch.linspace(0, math.pi, 61, dtype=torch.float64)
    first, second = torch.triu_indices(61, 61, 1)
    return angle[first], angle[second]


def margins(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """f(θ_1) − f(θ_2) from the density, and cos θ_1 − cos θ_2."""
    density = WrappedCauchy(RHO)
    return density.prob(one) - density.prob(other), torch.cos(one) - torch.cos(other)


def denominator(angle: Tensor) -> Tensor:
    return 1 + RHO**2 - 2 * RHO * torch.cos(angle)


def factor() -> Tensor:
    return torch.as_tensor(largest_slope(RHO.numpy()))


def check_11(setting: Setting, of_the_pair: bool = False) -> Finding:
    """Whether the margin equals that of cos times the printed factor, or the pair's own slope."""
    one, other = pairs()
    margin, cosine = margins(one, other)
    slope = RHO * (1 - RHO**2) / (math.pi * denominator(one) * denominator(other))
    finding = identity((slope if of_the_pair else factor()) * cosine, margin, "1,830 pairs")
    return replace(
        finding,
        sentence=f"{finding.sentence} The factor is not one of ρ alone: it is "
        "ρ(1 − ρ²)/(π D_j D_k), D = 1 + ρ² − 2ρ cos θ, exact to "
        f"{gap(slope * cosine, margin):.1e}.",
    )


def check_45(setting: Setting) -> Finding:
    """The printed difference against that of the densities."""
    one, other = pairs()
    margin, _ = margins(one, other)
    top = (1 - RHO**2) / (2 * math.pi)
    return identity(top / denominator(one) - top / denominator(other), margin, "1,830 pairs")


def check_46(setting: Setting, bracket: bool = False) -> Finding:
    """The fraction with 2ρ cos θ_1 − cos θ_2, or with the bracket 2ρ(cos θ_1 − cos θ_2)."""
    one, other = pairs()
    margin, cosine = margins(one, other)
    bracketed = 2 * RHO * cosine
    bare = 2 * RHO * torch.cos(one) - torch.cos(other)
    rest = (1 - RHO**2) / (2 * math.pi) / (denominator(one) * denominator(other))
    return identity(
        rest * (bracketed if bracket else bare).abs(),
        margin.abs(),
        "1,830 pairs",
        rest * bracketed.abs(),
        "With the bracket 2ρ(cos θ_1 − cos θ_2)",
    )


def check_47(setting: Setting, smallest: bool = False) -> Finding:
    """Is the margin at least the bound with both denominators at angle 0 (or at π)?"""
    one, other = pairs()
    margin, cosine = margins(one, other)
    slope = torch.as_tensor(smallest_slope(RHO.numpy())) if smallest else factor()
    bound = slope * cosine
    kept = float((margin >= bound * (1 - 1e-9)).double().mean())
    return Finding(
        judge(kept == 1),
        f"The inequality holds for {100 * kept:.1f} % of 5,490 pairs. "
        + (
            "Denominators at angle π bound it from below."
            if smallest
            else "1 + ρ² − 2ρ is the smallest denominator, so its inverse bounds the margin from "
            f"above: ≤ holds for {100 * float((margin <= bound * (1 + 1e-9)).double().mean()):.1f} "
            "%."
        ),
        {"share of pairs": kept},
    )


def check_48(setting: Setting) -> Finding:
    """The bound of Equation 47 against the slope at two angles of 0."""
    zero = torch.zeros(1, dtype=torch.float64)
    bound = (1 - RHO**2) / (2 * math.pi) * 2 * RHO / (1 + RHO**2 - 2 * RHO) ** 2
    return identity(bound, RHO * (1 - RHO**2) / (math.pi * denominator(zero) ** 2), "Three ρ")


def check_49(setting: Setting, power: int = 3) -> Finding:
    """The same, simplified to (ρ + ρ²)/(π(1 − ρ)^power)."""
    bound = (1 - RHO**2) / (2 * math.pi) * 2 * RHO / (1 + RHO**2 - 2 * RHO) ** 2
    return identity((RHO + RHO**2) / (math.pi * (1 - RHO) ** power), bound, "Three ρ")


def check_50(setting: Setting, rho: float = 0.5) -> Finding:
    """Is factor·|Δcos| ≥ |Δcos| at ρ the same condition as factor ≥ 1, for every pair?"""
    one, other = pairs()
    cosine = (torch.cos(one) - torch.cos(other)).abs()
    value = float(largest_slope(rho))
    same = bool(((value * cosine >= cosine) == (value >= 1)).all())
    return Finding(
        judge(same),
        f"At ρ = {rho:g} the factor is {value:.3f}; the condition is the same for all 1,830 pairs.",
        {"factor": value},
    )


def check_51(setting: Setting, printed: float = PRINTED_THRESHOLD) -> Finding:
    """The root of the factor at 1, by root finding."""
    root = threshold()
    return Finding(
        judge(abs(root - printed) < 5e-6),
        f"(ρ + ρ²)/(π(1 − ρ)³) = 1 at ρ = {root:.10f}; printed {printed:.5f}.",
        {"root": root},
    )


_PLACE = "Appendix A.5, Equation {}"
CLAIMS = (
    Claim(
        "equation-11",
        "Section 3.3, Equation 11",
        "|f(θ_j) − f(θ_k)| = (ρ + ρ²)/(π(1 − ρ)³) · |cos θ_j − cos θ_k|.",
        "a second",
        check_11,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-45",
        _PLACE.format(45),
        "f(θ_1) − f(θ_2) is the difference of two closed forms.",
        "a second",
        check_45,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-46",
        _PLACE.format(46),
        "It is ((1 − ρ²)/2π) · |2ρ cos θ_1 − cos θ_2| / (D_1 D_2), as printed without a bracket.",
        "a second",
        check_46,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-47",
        _PLACE.format(47),
        "It is at least ((1 − ρ²)/2π) · 2ρ|cos θ_1 − cos θ_2| / (1 + ρ² − 2ρ)².",
        "a second",
        check_47,
        "every pair",
    ),
    Claim(
        "equation-48",
        _PLACE.format(48),
        "The bound is the slope with both denominators at angle 0.",
        "a second",
        check_48,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-49",
        _PLACE.format(49),
        "It simplifies to (ρ + ρ²)/(π(1 − ρ)³) · |cos θ_1 − cos θ_2|.",
        "a second",
        check_49,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-50",
        _PLACE.format(50),
        "The bound exceeds |cos θ_1 − cos θ_2| where the factor exceeds 1.",
        "a second",
        check_50,
        "every pair",
    ),
    Claim(
        "equation-51",
        _PLACE.format(51),
        "(ρ + ρ²)/(π(1 − ρ)³) ≥ 1 is ρ ≥ 0.42332.",
        "a second",
        check_51,
        "five digits",
    ),
)

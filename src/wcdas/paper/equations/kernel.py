"""Equations 3 and 14 to 16: the symmetric wrapped stable kernel of one image."""

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from wcdas.circular import (
    SymmetricWrappedStable,
    WrappedCauchy,
    WrappedNormal,
)
from wcdas.paper.circle import angles
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.families import Family, spelled
from wcdas.paper.identity import TOLERANCE_TEXT, identity

RHO = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)[:, None]
THETA = angles(512)
FAMILIES: Mapping[float, Family] = MappingProxyType({1.0: WrappedCauchy, 2.0: WrappedNormal})


def check_3(setting: Setting, families: Mapping[float, Family] = FAMILIES) -> Finding:
    """The series with exponent a against the closed form of the family it is said to be."""
    stable = [SymmetricWrappedStable(RHO, a).prob(THETA) for a in families]
    closed = [family(RHO).prob(THETA) for family in families.values()]
    names = ", ".join(f"a = {a:g} {spelled(family)}" for a, family in families.items())
    return identity(torch.cat(stable), torch.cat(closed), names)


def check_14(setting: Setting, centre: float = 0.4, exponent: float = 2.0) -> Finding:
    """The series around a centre against the wrapped Normal there."""
    stable = SymmetricWrappedStable(RHO, exponent, centre).prob(THETA)
    return identity(stable, WrappedNormal(RHO, centre).prob(THETA), f"Centre {centre:g}")


def first_waves(moments: Tensor, sines: Tensor, cosines: Tensor) -> Tensor:
    """(1/2π)(1 + 2 Σ_n α_n(a_n sin nθ + b_n cos nθ)), with a = `sines`, b = `cosines`."""
    n = torch.arange(1, moments.shape[-1] + 1)
    waves = sines[:, None] * torch.sin(n[:, None] * THETA)
    waves = waves + cosines[:, None] * torch.cos(n[:, None] * THETA)
    return (1 + 2 * moments @ waves) / (2 * math.pi)


def check_15(setting: Setting, centre: float = 0.4, sign: int = 1) -> Finding:
    """The expanded terms, summed, against the density."""
    n = torch.arange(1, 129, dtype=torch.float64)
    moments = WrappedNormal(RHO[:, 0]).cosine_moment(n)
    expanded = first_waves(moments, sign * torch.sin(n * centre), torch.cos(n * centre))
    return identity(expanded, WrappedNormal(RHO, centre).prob(THETA), f"Centre {centre:g}")


def check_16(setting: Setting, own_centre: bool = False) -> Finding:
    """The order of the error in μ_m, with the image's own centre or the class's, which is 0."""

    def error(centre: float) -> float:
        n = torch.arange(1, 129, dtype=torch.float64)
        moments = WrappedNormal(RHO[:, 0]).cosine_moment(n)
        used = centre if own_centre else 0.0
        approximate = first_waves(moments, n * used, torch.ones_like(n))
        return float((approximate - WrappedNormal(RHO, centre).prob(THETA)).abs().max())

    order = math.log2(error(0.002) / error(0.001))
    return Finding(
        judge(order > 1.9, order > 0.9),
        f"With the {'image' if own_centre else 'class'}'s centre in the sine term the error is of "
        f"order {order:.2f} in μ_m"
        + ("." if own_centre else "; the printed μ_j has to be μ_m, which makes it order 2."),
        {"order of the error in μ_m": order},
    )


CLAIMS = (
    Claim(
        "equation-3",
        "Section 3.1, Equation 3",
        "h = (1/2π)(1 + 2 Σ_n ρ^(n^a) cos n(θ − μ)) is the wrapped Cauchy for a = 1 and the "
        "wrapped Normal for a = 2.",
        "a second",
        check_3,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-14",
        "Appendix A.1, Equation 14",
        "h with a = 2 and a centre μ_m is the wrapped Normal kernel.",
        "a second",
        check_14,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-15",
        "Appendix A.1, Equation 15",
        "cos n(θ − μ) = sin nμ sin nθ + cos nμ cos nθ in every term of the kernel.",
        "a second",
        check_15,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-16",
        "Appendix A.1, Equation 16",
        "For μ_m → 0 the terms become nμ_j sin nθ + cos nθ.",
        "a second",
        check_16,
        "order 2 in μ_m",
    ),
)

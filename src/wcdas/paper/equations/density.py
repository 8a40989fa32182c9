"""Equations 10, 12 and 13: the density in closed form, its gradient in ρ, and ρ as a sigmoid."""

import math

import torch

from wcdas.circular import SymmetricWrappedStable
from wcdas.heads import WCDASHead
from wcdas.paper.circle import angles
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.figure_3 import gradient
from wcdas.paper.identity import TOLERANCE, TOLERANCE_TEXT, gap, identity

RHO = torch.tensor([0.0, 0.3, 0.6, 0.9], dtype=torch.float64)[:, None]
THETA = angles(512)


def check_10(setting: Setting, exponent: float = 1.0) -> Finding:
    """The closed form against the series of Equation 3 with exponent a."""
    closed = (1 - RHO**2) / (2 * math.pi * (1 + RHO**2 - 2 * RHO * torch.cos(THETA)))
    series = SymmetricWrappedStable(RHO.clamp(min=1e-12), exponent).prob(THETA)
    return identity(closed, series, f"Series with a = {exponent:g}, ρ to 0.9")


def check_12(setting: Setting, factor: float = 2.0) -> Finding:
    """(−factor·ρ + (1 + ρ²) cos θ) / (π D²) against automatic differentiation; 2 is printed."""
    cosine = torch.cos(THETA)
    numerator = -factor * RHO + (1 + RHO**2) * cosine
    printed = numerator / (math.pi * (1 + RHO**2 - 2 * RHO * cosine) ** 2)
    return identity(printed, gradient(RHO.expand(4, 512), THETA), "ρ to 0.9, 512 angles")


def check_13(setting: Setting, start: float = 1.5) -> Finding:
    """The head's concentration against 1/(1 + e^{−w}) for w_ρ = start, and is it inside (0, 1)?"""
    head = WCDASHead(4, 3, init=start, start="paper").double()
    w_rho, rho = head.w_rho.detach(), head.concentration.detach()
    difference = gap(1 / (1 + torch.exp(-w_rho)), rho)
    inside = bool(((rho > 0) & (rho < 1)).all())
    return Finding(
        judge(difference <= TOLERANCE and inside),
        f"At w_ρ = {start:g} the head has ρ = {float(rho[0]):.6f}, "
        f"{'inside' if inside else 'rounded out of'} (0, 1), {difference:.1e} from the formula.",
        {"ρ": float(rho[0]), "largest relative difference": difference},
    )


CLAIMS = (
    Claim(
        "equation-10",
        "Section 3.3, Equation 10",
        "The series with a = 1 is f = (1 − ρ²)/(2π(1 + ρ² − 2ρ cos θ)).",
        "a second",
        check_10,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-12",
        "Section 3.3, Equation 12",
        "∂f/∂ρ = (−2ρ + (1 + ρ²) cos θ)/(π(1 + ρ² − 2ρ cos θ)²).",
        "a second",
        check_12,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-13",
        "Section 3.3, Equation 13",
        "ρ = 1/(1 + exp(−w_ρ)) keeps ρ in its domain.",
        "a second",
        check_13,
        TOLERANCE_TEXT,
    ),
)

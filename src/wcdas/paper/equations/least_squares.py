"""Equations 7, 8 and 27 to 29: the least-square error, and its sum over moments."""

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.distributions import Categorical

from wcdas.circular import (
    Mixture,
    WrappedCauchy,
    WrappedNormal,
    least_square_error,
)
from wcdas.paper.circle import angles, integral
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.families import Family, spelled
from wcdas.paper.identity import TOLERANCE_TEXT, identity

KERNELS = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
MIXTURE = Mixture(Categorical(torch.ones(5, dtype=torch.float64)), WrappedNormal(KERNELS))
RHO = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
N = torch.arange(1, 513)
FAMILIES: tuple[Family, ...] = (WrappedCauchy, WrappedNormal)


def by_quadrature(families: tuple[Family, ...] = FAMILIES) -> Tensor:
    """∫ (f − f_mixed)² dθ for both families and three ρ."""
    target = MIXTURE.prob(angles())
    return torch.cat(
        [integral((f(RHO[:, None]).prob(angles()) - target).square()) for f in families]
    )


def by_moments(powers: tuple[int, ...] = (1, 2)) -> Tensor:
    """(1/π) Σ_n (ρ^{n^power} − (1/M) Σ_m ρ_m^{n²})², as the paper writes it out."""
    mixed = (KERNELS[:, None] ** N.square()).mean(0)
    fits = torch.cat([RHO[:, None] ** (N**power) for power in powers])
    return (fits - mixed).square().sum(1) / math.pi


def check_7(setting: Setting, families: tuple[Family, ...] = FAMILIES) -> Finding:
    """The library's least-square error against the integral of the squared difference."""
    errors = torch.cat([least_square_error(f(RHO), MIXTURE) for f in families])
    return identity(errors, by_quadrature(), "Both families, three ρ, by quadrature")


def check_8(setting: Setting, families: tuple[Family, ...] = FAMILIES, terms: int = 512) -> Finding:
    """The fitted ρ against a search over the quadrature error."""
    moments = MIXTURE.cosine_moment(torch.arange(1, terms + 1))
    target = MIXTURE.prob(angles())
    numbers, gaps = {}, []
    for family in families:

        def error(rho: float, family: Family = family) -> float:
            member = family(torch.tensor(rho, dtype=torch.float64))
            return float(integral((member.prob(angles()) - target).square()))

        found = minimize_scalar(error, bounds=(0, 0.999), method="bounded", options={"xatol": 1e-9})
        fitted = float(family.fit_moments(moments).concentration)
        numbers[f"ρ_min of {spelled(family)}"] = fitted
        gaps.append(abs(fitted - float(found.x)))
    values = ", ".join(f"{name} = {value:.5f}" for name, value in numbers.items())
    return Finding(
        judge(max(gaps) < 1e-5),
        f"The minimum exists and is found: {values}; a search over densities differs by "
        f"{max(gaps):.1e}.",
        numbers,
    )


def check_27(setting: Setting, cosine: bool = True) -> Finding:
    """(1/π) Σ_n (δ_n cos nθ)² at every angle, or without the cosine, against the integral."""
    difference = WrappedCauchy(RHO).cosine_moment(N) - MIXTURE.cosine_moment(N)
    expected = by_quadrature((WrappedCauchy,))[:, None].expand(3, 64)
    waves = torch.cos(N[:, None] * angles(64)).square() if cosine else torch.ones(512, 64).double()
    return identity(
        difference.square() @ waves / math.pi,
        expected,
        "Wrapped Cauchy, three ρ, 64 angles",
        difference.square().sum(1, keepdim=True).expand(3, 64) / math.pi,
        "An integral over the circle does not depend on θ; without cos nθ it is Equation 28",
    )


def check_28(setting: Setting, factor: float = 1 / math.pi) -> Finding:
    """factor · Σ_n (α_n,fit − α_n,mixed)² against the integral."""
    mixed = MIXTURE.cosine_moment(N)
    sums = [(f(RHO).cosine_moment(N) - mixed).square().sum(1) for f in FAMILIES]
    return identity(factor * torch.cat(sums), by_quadrature(), "Both families, three ρ")


def check_29(setting: Setting, powers: tuple[int, ...] = (1, 2)) -> Finding:
    """ρ^n for the wrapped Cauchy and ρ^{n²} for the wrapped Normal, written out."""
    return identity(by_moments(powers), by_quadrature(), "Both families, three ρ")


CLAIMS = (
    Claim(
        "equation-7",
        "Section 3.2, Equation 7",
        "Δ is the squared norm of f_fit − f_mixed.",
        "a second",
        check_7,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-8",
        "Section 3.2, Equation 8",
        "ρ_min = argmin Δ_ρ.",
        "a second",
        check_8,
        "1e-5 in ρ",
    ),
    Claim(
        "equation-27",
        "Appendix A.3, Equation 27",
        "Δ = (1/π) Σ_n ((α_n,fit − α_n,mixed) cos nθ)².",
        "a second",
        check_27,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-28",
        "Appendix A.3, Equation 28",
        "Δ = (1/π) Σ_n (α_n,fit − α_n,mixed)².",
        "a second",
        check_28,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-29",
        "Appendix A.3, Equation 29",
        "For the wrapped Cauchy α_n,fit = ρ^n: Δ = (1/π) Σ_n (ρ^n − (1/M) Σ_m ρ_m^(n²))²; for the "
        "wrapped Normal α_n,fit = ρ^(n²).",
        "a second",
        check_29,
        TOLERANCE_TEXT,
    ),
)

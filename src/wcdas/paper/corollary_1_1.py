"""Corollary 1.1: the cosine moments of a mixture are the means of its kernels' moments."""

import math

import torch
from torch import Tensor
from torch.distributions import Categorical

from wcdas.circular import Mixture, WrappedNormal
from wcdas.paper.circle import angles, integral
from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.identity import TOLERANCE_TEXT, identity

KERNELS = (0.1, 0.4, 0.7, 0.95)
EQUAL = (1.0,) * len(KERNELS)
ORDERS = torch.arange(1, 33)


def kernels(centre: float = 0.0) -> WrappedNormal:
    return WrappedNormal(torch.tensor(KERNELS, dtype=torch.float64), centre)


def mixture(centre: float = 0.0, weights: tuple[float, ...] = EQUAL) -> Mixture:
    return Mixture(Categorical(torch.tensor(weights, dtype=torch.float64)), kernels(centre))


def quadrature_moments(f_mixed: Mixture) -> Tensor:
    """α_n = ∫ f_mixed cos nθ dθ."""
    return integral(f_mixed.prob(angles()) * torch.cos(ORDERS[:, None] * angles()))


def check(setting: Setting, centre: float = 0.0, weights: tuple[float, ...] = EQUAL) -> Finding:
    """The mean of ρ_m^{n²} against the moments of the density, kernels at `centre`."""
    return identity(
        kernels().cosine_moment(ORDERS).mean(0),
        quadrature_moments(mixture(centre, weights)),
        f"{len(KERNELS)} kernels at {centre:g}, {len(ORDERS)} moments by quadrature",
        kernels(centre).cosine_moment(ORDERS).mean(0),
        "With cos nμ in each kernel's moment",
    )


def series(moments: Tensor) -> Tensor:
    """(1/2π)(1 + 2 Σ_n α_n cos nθ)."""
    n = torch.arange(1, moments.shape[-1] + 1)
    waves = torch.cos(n[:, None] * angles(512))
    return (1 + 2 * moments @ waves) / (2 * math.pi)


def check_series(setting: Setting, kernels_first: bool = True, power: int = 2) -> Finding:
    """The density as a mean of series, or as a series of means, with moments ρ_m^{n^power}."""
    rho = torch.tensor(KERNELS, dtype=torch.float64)[:, None]
    moments = rho ** (torch.arange(1, 129, dtype=torch.float64) ** power)
    left = series(moments).mean(0) if kernels_first else series(moments.mean(0))
    return identity(left, mixture().prob(angles(512)), "512 angles")


def check_23(setting: Setting, power: int = 2) -> Finding:
    """The series of the mean moments against the density."""
    return check_series(setting, kernels_first=False, power=power)


def check_24(setting: Setting, orders: int = 128) -> Finding:
    """The series of the mixture's own moments, up to `orders`, against its density."""
    moments = mixture().cosine_moment(torch.arange(1, orders + 1))
    return identity(series(moments), mixture().prob(angles(512)), "512 angles")


def check_25(setting: Setting) -> Finding:
    """The series of moments found by quadrature against the density: nothing is left over."""
    moments = quadrature_moments(mixture())
    return identity(series(moments), mixture().prob(angles(512)), "512 angles")


_PLACE = "Appendix A.2, Equation {}"
CLAIMS = (
    Claim(
        "equation-6",
        "Section 3.1, Equation 6",
        "α_mixed,n = (1/M) Σ_m α_m,n.",
        "a second",
        check,
        TOLERANCE_TEXT,
    ),
    Claim(
        "corollary-1.1",
        "Section 3.1, Corollary 1.1",
        "The mixture is a wrapped distribution whose cosine moments are the means of those of its "
        "kernels.",
        "a second",
        check,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-22",
        _PLACE.format(22),
        "f_mixed = (1/2πM) Σ_m (1 + 2 Σ_n ρ_m^(n²) cos nθ).",
        "a second",
        check_series,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-23",
        _PLACE.format(23),
        "The two sums can be exchanged: f_mixed = (1/2π)(1 + 2 Σ_n (1/M) Σ_m ρ_m^(n²) cos nθ).",
        "a second",
        check_23,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-24",
        _PLACE.format(24),
        "f_mixed = (1/2π)(1 + 2 Σ_n α_mixed,n cos nθ).",
        "a second",
        check_24,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-25",
        _PLACE.format(25),
        "An empty line that the source numbers, after Equation 24: nothing is added to its series.",
        "a second",
        check_25,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-26",
        _PLACE.format(26),
        "α_mixed,n = (1/M) Σ_m ρ_m^(n²) = (1/M) Σ_m α_m,n.",
        "a second",
        check,
        TOLERANCE_TEXT,
    ),
)

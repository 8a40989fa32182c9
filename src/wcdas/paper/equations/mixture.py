"""Equations 4 and 17 to 20: the sum of the kernels, and its sine terms."""

import math

import torch
from torch import Tensor
from torch.distributions import Categorical

from wcdas.circular import Mixture, WrappedNormal
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.equations.kernel import THETA, first_waves
from wcdas.paper.identity import TOLERANCE_TEXT, identity

KERNELS = torch.tensor([0.2, 0.5, 0.7, 0.9], dtype=torch.float64)
CENTRES = torch.tensor([-1.0, 0.5, 2.0, -0.5], dtype=torch.float64)  # times a small number
N = torch.arange(1, 129, dtype=torch.float64)
MOMENTS = WrappedNormal(KERNELS).cosine_moment(N)
EQUAL = (1.0,) * len(KERNELS)


def check_4(setting: Setting, weights: tuple[float, ...] = EQUAL) -> Finding:
    """The mean of the kernels' densities against a mixture of `weights`."""
    kernels = WrappedNormal(KERNELS, 0.1 * CENTRES)
    mixture = Mixture(Categorical(torch.tensor(weights, dtype=torch.float64)), kernels)
    mean = kernels.prob(THETA[:, None]).mean(1)
    return identity(mean, mixture.prob(THETA), "4 kernels, 512 angles")


def linearised(size: float) -> Tensor:
    """The mixture with every kernel as in Equation 16, centres size·CENTRES."""
    pairs = zip(MOMENTS, size * CENTRES, strict=True)
    return torch.stack([first_waves(m, N * c, torch.ones_like(N)) for m, c in pairs]).mean(0)


def check_17(setting: Setting, size: float = 0.001) -> Finding:
    """The order of the error when all centres shrink together from 2·size to size."""

    def error(size: float) -> float:
        exact = WrappedNormal(KERNELS, size * CENTRES).prob(THETA[:, None]).mean(1)
        return float((linearised(size) - exact).abs().max())

    order = math.log2(error(2 * size) / error(size))
    return Finding(
        judge(order > 1.9),
        f"The sum of the approximated kernels differs from the mixture by {error(size):.1e}, "
        f"order {order:.2f} in μ_m.",
        {"order of the error in μ_m": order, "largest difference": error(size)},
    )


def check_18(setting: Setting, factor: float = 1.0) -> Finding:
    """(1/M)·2 Σ_n n ρ_m^{n²} μ_m sin nθ, times `factor`, against the sine part of Equation 17."""
    centres = 0.001 * CENTRES
    sines = 2 * (MOMENTS * centres[:, None] * N).mean(0) @ torch.sin(N[:, None] * THETA)
    part = (linearised(0.001) - linearised(-0.001)) / 2
    return _without_the_factor(factor * sines, part, sines)


def check_19(setting: Setting, factor: float = 1.0) -> Finding:
    """(1/M)·2 Σ_n ρ_m^{n²} cos nθ, times `factor`, against the cosine part of Equation 17."""
    cosines = 2 * MOMENTS.mean(0) @ torch.cos(N[:, None] * THETA)
    part = linearised(0.0) - 1 / (2 * math.pi)
    return _without_the_factor(factor * cosines, part, cosines)


def _without_the_factor(printed: Tensor, part: Tensor, bare: Tensor) -> Finding:
    return identity(
        printed, part, "512 angles", bare / (2 * math.pi), "With the factor 1/2π that is lost"
    )


def check_20(setting: Setting, mean: float = 0.0, spread: float = 0.05) -> Finding:
    """How the norm of the sine terms falls with the number of images M, for μ_m ~ N(mean, σ)."""
    random = torch.Generator().manual_seed(0)
    sizes = (10, 100, 1000, 10_000)
    norms = {}
    for size in sizes:
        rho = 0.9 * torch.rand(64, size, generator=random, dtype=torch.float64)
        centres = torch.randn(64, size, generator=random, dtype=torch.float64) * spread + mean
        n = torch.arange(1, 17, dtype=torch.float64)
        waves = [2 * k * (rho ** (k * k) * centres).mean(1) for k in n]
        norms[size] = float((math.pi * torch.stack(waves).square().sum(0)).mean().sqrt())
    order = math.log10(norms[sizes[-1]] / norms[sizes[0]]) / math.log10(sizes[-1] / sizes[0])
    return Finding(
        judge(order < -0.4),
        f"Over 64 draws the norm of the sine terms falls from {norms[sizes[0]]:.2e} with "
        f"{sizes[0]} images to {norms[sizes[-1]]:.2e} with {sizes[-1]:,}: M to the power "
        f"{order:.2f}.",
        {"power of M": order},
    )


CLAIMS = (
    Claim(
        "equation-4",
        "Section 3.1, Equation 4",
        "f_mixed = (1/M) Σ_m h(ρ_m, θ).",
        "a second",
        check_4,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-17",
        "Appendix A.1, Equation 17",
        "f_mixed is the mean of the kernels of Equation 16.",
        "a second",
        check_17,
        "order 2 in μ_m",
    ),
    Claim(
        "equation-18",
        "Appendix A.1, Equation 18",
        "The sine part of f_mixed is (1/M)(2 Σ_n Σ_m n ρ_m^(n²) μ_m sin nθ), beside 1/2π.",
        "a second",
        check_18,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-19",
        "Appendix A.1, Equation 19",
        "The cosine part of f_mixed is (1/M)(2 Σ_n Σ_m ρ_m^(n²) cos nθ).",
        "a second",
        check_19,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-20",
        "Appendix A.1, Equation 20",
        "With μ_m ~ N(0, σ) the sine part goes to 0.",
        "a second",
        check_20,
        "M to the power −0.4 or less",
    ),
)

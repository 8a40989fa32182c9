"""Section 3.2 and Appendix A.4: which family fits a mixture better, for ρ_m spread evenly over
[0, 1) (Theorem 3) and for ρ_m ~ N(μ_ρ, σ_ρ) (Figure 2)."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor
from torch.distributions import Normal

from wcdas.circular import WrappedCauchy, WrappedNormal
from wcdas.paper.circle import CAUCHY_AND_NORMAL, angles, double, orders, spelled
from wcdas.paper.claim import Finding, Setting, judge
from wcdas.paper.theorem_2 import fitted_by_search, roots, smallest_error, uniform_moments
from wcdas.report import SEQUENTIAL, draw

BETTER, WORSE = CAUCHY_AND_NORMAL
TERMS = 4096
KERNELS = 2048


def theorem_3(setting: Setting) -> Finding:
    """Is the error of the wrapped Cauchy below that of the wrapped Normal for ρ_m uniform?"""
    families = (BETTER, WORSE)
    moments, mixture = uniform_moments(TERMS), simulated_density()
    exact = [float(smallest_error(family, moments)) for family in families]
    simulated = [fitted_by_search(family, mixture)[1] for family in families]
    ratio, simulated_ratio = exact[1] / exact[0], simulated[1] / simulated[0]
    agree = all(math.isclose(*pair, rel_tol=5e-4) for pair in zip(exact, simulated, strict=True))
    left, right, *limit = (argument(moments[:n], power) for n in (100, TERMS) for power in (1, 2))
    share = share_of_classes()
    better, worse = map(spelled, families)
    return Finding(
        judge(agree and ratio > 1),
        f"From α_n = E ρ^(n²), Δ = {exact[0]:.3e} for {better} and {exact[1]:.3e} for {worse}, "
        f"ratio {ratio:.1f}; from {KERNELS:,} kernels and their densities {simulated[0]:.3e} and "
        f"{simulated[1]:.3e}, ratio {simulated_ratio:.1f}. Of simulated classes of 100 images "
        f"{100 * share:.0f} % are fitted better by {better}. The printed argument does not show "
        "it: it compares (mean root − α₁)² of the two families, whose values depend on how many "
        f"roots are taken ({left:.3f} < {right:.3f} with 100, {limit[0]:.3f} and {limit[1]:.3f} "
        f"with {TERMS:,}) and are not the errors.",
        {
            f"Δ of {better}, exact limit": exact[0],
            f"Δ of {worse}, exact limit": exact[1],
            "ratio, exact limit": ratio,
            f"Δ of {better}, simulation": simulated[0],
            f"Δ of {worse}, simulation": simulated[1],
            "ratio, simulation": simulated_ratio,
            "share of classes of 100 images": share,
        },
    )


def simulated_density() -> Tensor:
    """Return the mixture's density at `angles`, from one ρ_m drawn in each of KERNELS intervals.

    The intervals are finer towards ρ = 1, where kernels are narrow; each weighs its length.
    """
    random = torch.Generator().manual_seed(0)
    steps = torch.linspace(1, 0, KERNELS + 1, dtype=torch.float64).square()
    edges = 1 - steps
    lengths = edges.diff()
    draws = torch.rand(KERNELS, generator=random, dtype=torch.float64)
    kernels = WrappedNormal((edges[:-1] + lengths * draws)[:, None])
    return torch.cat([lengths @ kernels.prob(part) for part in angles().split(64)])


def share_of_classes() -> float:
    """Return how often the better family wins for 200 classes of a hundred images each."""
    random = torch.Generator().manual_seed(0)
    rho = torch.rand(200, 100, generator=random, dtype=torch.float64)
    moments = WrappedNormal(rho).cosine_moment(orders(512)).mean(1)
    return float((smallest_error(BETTER, moments) < smallest_error(WORSE, moments)).double().mean())


def argument(moments: Tensor, power: int) -> float:
    """(E_n α_n^{1/n^power} − α₁)², what the printed proof compares."""
    return float((roots(moments, power).mean() - moments[0]).square())


# Equations 37 to 44: sums of powers of evenly spread ρ_m, in exact fractions.

SIZES = (2, 3, 5, 10, 101)
# α_n in powers of 1/N, as Equations 39 to 41 print it, by n.
PRINTED: dict[int, tuple[str, ...]] = {
    1: ("1/2", "1/2"),
    2: ("1/5", "1/2", "1/3", "0", "-1/30"),
    3: ("1/10", "1/2", "3/4", "0", "-7/10", "0", "1/2", "0", "-3/20"),
}


LEFT_OUT = 0  # of the N terms ρ_m = m/N, at the end of the sum that Equation 37 prints


def equation_37(setting: Setting) -> Finding:
    """Does Σ_n α_n², which Δ needs, settle when the sum over ρ_m = m/N runs to N?"""
    size = 10
    rho = [m / size for m in range(1, size - LEFT_OUT + 1)]
    squares = [(sum(r ** (n * n) for r in rho) / size) ** 2 for n in range(1, 1001)]
    few, many = sum(squares[:100]), sum(squares)
    without_the_last = sum(range(1, 10**6)) / 10**12  # of m/N for N = 10⁶, whose limit is ½
    return Finding(
        judge(many - few < 1e-9, corrected=abs(without_the_last - 0.5) < 1e-5),
        f"With N = {size} and the sum to N, Σ α_n² is {few:.4f} over 100 orders and {many:.4f} "
        "over 1,000. ρ_N = 1 is outside [0, 1): its kernel is a point, and Δ has no limit. The "
        "sum has to end at N − 1, as the list before it does, which changes nothing as N → ∞.",
        {"Σ α_n² over 100 orders": few, "Σ α_n² over 1,000 orders": many},
    )


def mean_power(size: int, power: int) -> Fraction:
    """(1/N) Σ_{k=1}^{N} (k/N)^power."""
    return Fraction(sum(k**power for k in range(1, size + 1)), size ** (power + 1))


def bernoulli(count: int) -> list[Fraction]:
    """B_0 … B_count with B_1 = −½, from Σ_k C(m + 1, k) B_k = 0."""
    numbers = [Fraction(1)]
    for m in range(1, count + 1):
        numbers.append(-sum(math.comb(m + 1, k) * numbers[k] for k in range(m)) / Fraction(m + 1))
    return numbers


def faulhaber(size: int, power: int) -> Fraction:
    """N^{p+1}/(p + 1) + N^p/2 + Σ_k (B_k/k!) p!/(p − k + 1)! N^{p−k+1}, k = 2 … p."""
    total = Fraction(size ** (power + 1), power + 1) + Fraction(size**power, 2)
    for k, b_k in enumerate(bernoulli(power)[2:], 2):
        falling = Fraction(math.factorial(power), math.factorial(power - k + 1))
        total += b_k / math.factorial(k) * falling * size ** (power - k + 1)
    return total


def general(size: int, order: int) -> Fraction:
    """Return the right side of Equation 43: Faulhaber's sum for p = n² over N^{p+1}."""
    return faulhaber(size, order**2) / size ** (order**2 + 1)


def _exactly(cases: list[bool], what: str) -> Finding:
    return Finding(
        judge(all(cases)),
        f"Exact in {sum(cases)} of {len(cases)} {what} in whole fractions.",
        {"cases": len(cases), "exact": sum(cases)},
    )


def equation_38(setting: Setting) -> Finding:
    """Faulhaber's formula against the sum itself, for powers 1 to 12."""
    asked = [(size, power) for size in SIZES for power in range(1, 13)]
    cases = [sum(k**p for k in range(1, size + 1)) == faulhaber(size, p) for size, p in asked]
    return _exactly(cases, "sums of powers")


def _check_of(order: int) -> Callable[[Setting], Finding]:
    def check(setting: Setting) -> Finding:
        """The printed polynomial in 1/N against the sum itself, in whole fractions."""
        terms = [Fraction(coefficient) for coefficient in PRINTED[order]]
        polynomials = {size: sum(c / size**k for k, c in enumerate(terms)) for size in SIZES}
        cases = [mean_power(size, order**2) == value for size, value in polynomials.items()]
        return _exactly(cases, f"values of N for n = {order}")

    return check


equation_39, equation_40, equation_41 = map(_check_of, PRINTED)


def equation_43(setting: Setting) -> Finding:
    """The general formula, and its limit 1/(n² + 1) as N grows."""
    asked = [(size, n) for size in SIZES for n in (1, 2, 3, 4, 5, 6)]
    cases = [mean_power(size, n**2) == general(size, n) for size, n in asked]
    far = max(abs(float(general(10**6, n)) - 1 / (n**2 + 1)) for n in (1, 2, 3, 6))
    return Finding(
        judge(all(cases) and far < 1e-5),
        f"Exact in {sum(cases)} of {len(cases)} cases in whole fractions; with N = 10⁶ it is "
        f"within {far:.1e} of 1/(n² + 1).",
        {"cases": len(cases), "exact": sum(cases), "distance from the limit": far},
    )


def equation_44(setting: Setting) -> Finding:
    """Δ of both families for the printed finite N, where ρ_m = 1/N … (N − 1)/N."""
    ratios = {}
    for size in (10, 100, 1000):
        moments = WrappedNormal(orders(size - 1) / size).cosine_moment(orders(512)).mean(0)
        ratios[size] = float(smallest_error(WORSE, moments) / smallest_error(BETTER, moments))
    values = ", ".join(f"{ratio:.2f} with N = {size}" for size, ratio in ratios.items())
    return Finding(
        judge(min(ratios.values()) > 1),
        f"Δ of {spelled(WORSE)} ÷ Δ of {spelled(BETTER)} is {values}.",
        {f"Δ ratio with N = {size}": ratio for size, ratio in ratios.items()},
    )


# Figure 2: both least-square errors, and which family they prefer, for ρ_m ~ N(μ_ρ, σ_ρ).

VALUES = orders(9) / 10
SHOWN_TERMS, OTHER_TERMS = 100, (10, 1000, 4096)


def printed_rule(mean: Tensor, spread: Tensor) -> Tensor:
    """Return where the paper says that the wrapped Cauchy is preferred."""
    return spread > 0.1 + 1e-9


def mixture_moments(terms: int, clipped: bool = True) -> Tensor:
    """α_n = E ρ^{n²} in shape [σ_ρ, μ_ρ, n], for ρ ~ N(μ_ρ, σ_ρ) clipped to [0, 1].

    With ρ = exp(−e^{2v}) the integrand is smooth in v at both ends, so equal steps of v suffice.
    """
    v = torch.linspace(math.log(1e-9), math.log(6.5), 2001, dtype=torch.float64)
    rho = torch.exp(-torch.exp(2 * v))
    law = Normal(VALUES[None, :, None], VALUES[:, None, None])
    weights = law.log_prob(rho).exp() * 2 * torch.exp(2 * v) * rho * (v[1] - v[0])
    at_zero, at_one = law.cdf(double(0.0)), 1 - law.cdf(double(1.0))
    kernels = WrappedNormal(rho.clamp(max=1 - 2**-53))
    inside = weights @ kernels.cosine_moment(orders(terms))
    return inside + at_one if clipped else inside / (1 - at_one - at_zero)


def preferred(moments: Tensor) -> Tensor:
    """Return whether the wrapped Cauchy has the smaller error."""
    return smallest_error(WrappedCauchy, moments) < smallest_error(WrappedNormal, moments)


def figure_2(setting: Setting) -> Finding:
    """The rule for the preferred family against the errors on the paper's grid."""
    moments = mixture_moments(SHOWN_TERMS)
    cauchy, normal = (smallest_error(family, moments) for family in CAUCHY_AND_NORMAL)
    prefers_cauchy = cauchy < normal
    others = [preferred(mixture_moments(terms)) for terms in OTHER_TERMS]
    changed = sum(int((other != prefers_cauchy).sum()) for other in others)
    moved = preferred(mixture_moments(SHOWN_TERMS, clipped=False)) != prefers_cauchy
    spread, mean = torch.meshgrid(VALUES, VALUES, indexing="ij")
    wrong = printed_rule(mean, spread) != prefers_cauchy
    count = int(wrong.sum())
    cells = ", ".join(f"({m:g}, {s:g})" for m, s in zip(mean[wrong], spread[wrong], strict=True))
    paint = partial(_paint, cauchy=cauchy, normal=normal, prefers_cauchy=prefers_cauchy)
    return Finding(
        judge(count == 0 and changed == 0, count <= 8 and changed == 0),
        f"With {SHOWN_TERMS} terms of the series the rule is right in {81 - count} of 81 cells"
        + (f"; it is wrong at (μ_ρ, σ_ρ) = {cells}" if cells else "")
        + ". The boundary depends on μ_ρ too. Clipping puts mass on ρ = 1, where the sum of "
        "squares grows with every term, but the map is "
        + ("the same" if changed == 0 else f"different in {changed} cells")
        + f" with {', '.join(f'{t:,}' for t in OTHER_TERMS)} terms; leaving that mass out changes "
        f"{int(moved.sum())} cells, {int(prefers_cauchy[moved].sum())} of them to the wrapped "
        "Normal.",
        {
            "terms of the series": SHOWN_TERMS,
            "cells in which the rule is wrong": count,
            "cells that change with the number of terms": changed,
            "cells that change when the mass at ρ = 1 is left out": int(moved.sum()),
        },
        (draw(setting.figures, "figure-2", (11, 3.7), paint),),
    )


def _paint(figure: Figure, cauchy: Tensor, normal: Tensor, prefers_cauchy: Tensor) -> None:
    axes = figure.subplots(1, 3, sharey=True)
    both = torch.stack([cauchy, normal]).log10()
    low, high = float(both.min()), float(both.max())
    _map(axes[0], normal.log10(), "(a) wrapped Normal", SEQUENTIAL, low, high)
    image = _map(axes[1], cauchy.log10(), "(b) wrapped Cauchy", SEQUENTIAL, low, high)
    bar = figure.colorbar(image, ax=list(axes[:2]))
    bar.set_label(f"log₁₀ of the least-square error, {SHOWN_TERMS} terms")
    title = "(c) better fit: Cauchy (C), Normal (N)"
    _map(axes[2], prefers_cauchy.double(), title, "gray_r", -0.6, 1.6)
    for i, row in enumerate(prefers_cauchy.tolist()):
        for j, is_cauchy in enumerate(row):
            letter, colour = ("C", "white") if is_cauchy else ("N", "black")
            axes[2].text(VALUES[j], VALUES[i], letter, color=colour, ha="center", va="center")
    axes[2].tick_params(left=False)
    axes[0].set_ylabel("standard deviation of ρ")


def _map(ax: Axes, values: Tensor, title: str, colours: str, low: float, high: float) -> AxesImage:
    ax.set(xlabel="mean of ρ", title=title, xticks=VALUES.tolist(), yticks=VALUES.tolist())
    ax.spines[:].set_visible(False)
    ends = (0.05, 0.95, 0.05, 0.95)
    return ax.imshow(values.numpy(), cmap=colours, vmin=low, vmax=high, origin="lower", extent=ends)

"""Section 3.3 and Appendix A.5: the margin of the wrapped Cauchy density and that of the cosine.

    f(θ_j) − f(θ_k) = K · (cos θ_j − cos θ_k)
    K(ρ, θ_j, θ_k) = ρ(1 − ρ²) / (π D_j D_k),   D = 1 + ρ² − 2ρ cos θ

This is exact. D grows with the angle, so K is largest where both angles go to 0, and smallest where
both go to π.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from wcdas.circular import WrappedCauchy
from wcdas.paper.circle import double
from wcdas.paper.claim import Finding, Setting, Table, gap, identity, judge
from wcdas.report import COLOURS, LINES, draw

PRINTED_THRESHOLD = 0.42332
CONCENTRATIONS: tuple[float, ...] = (0.4234, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
SCALE = 1.0  # on f alone
INATURALIST_SCALE = 250.0
PAIR = (30.0, 90.0)  # degrees
LARGEST_ANGLE = 180.0  # degrees, of all pairs


def slope(rho: Any, angle_j: Any, angle_k: Any) -> Any:
    """K(ρ, θ_j, θ_k)."""
    d_j = 1 + rho**2 - 2 * rho * np.cos(angle_j)
    d_k = 1 + rho**2 - 2 * rho * np.cos(angle_k)
    return rho * (1 - rho**2) / (math.pi * d_j * d_k)


def largest_slope(rho: Any) -> Any:
    """(ρ + ρ²) / (π(1 − ρ)³), the factor that the paper prints."""
    return (rho + rho**2) / (math.pi * (1 - rho) ** 3)


def smallest_slope(rho: Any) -> Any:
    """(ρ − ρ²) / (π(1 + ρ)³)."""
    return (rho - rho**2) / (math.pi * (1 + rho) ** 3)


def threshold() -> float:
    """Return the ρ at which the printed factor reaches 1."""
    return float(brentq(lambda rho: largest_slope(rho) - 1, 1e-6, 1 - 1e-6, xtol=1e-14))


# Equations 11 and 45 to 51: the steps of the proof.

RHO = double(0.2, 0.5, 0.8)[:, None]
ANGLES = torch.linspace(0, math.pi, 61, dtype=torch.float64)
ONE, OTHER = (ANGLES[i] for i in torch.triu_indices(61, 61, 1))  # all pairs θ_1 < θ_2
PAIRS = "1,830 pairs"


def margins() -> tuple[Tensor, Tensor]:
    """Return f(θ_1) − f(θ_2) from the density, and cos θ_1 − cos θ_2."""
    density = WrappedCauchy(RHO)
    return density.prob(ONE) - density.prob(OTHER), torch.cos(ONE) - torch.cos(OTHER)


def denominator(angle: Tensor) -> Tensor:
    return 1 + RHO**2 - 2 * RHO * torch.cos(angle)


def equation_11(setting: Setting) -> Finding:
    """Whether the margin equals that of cos times the printed factor."""
    margin, cosine = margins()
    exact = RHO * (1 - RHO**2) / (math.pi * denominator(ONE) * denominator(OTHER))
    finding = identity(largest_slope(RHO) * cosine, margin, PAIRS)
    return replace(
        finding,
        sentence=f"{finding.sentence} The factor is not one of ρ alone: it is "
        "ρ(1 − ρ²)/(π D_j D_k), D = 1 + ρ² − 2ρ cos θ, exact to "
        f"{gap(exact * cosine, margin):.1e}.",
    )


def equation_45(setting: Setting) -> Finding:
    """The printed difference against that of the densities."""
    top = (1 - RHO**2) / (2 * math.pi)
    return identity(top / denominator(ONE) - top / denominator(OTHER), margins()[0], PAIRS)


def equation_46(setting: Setting) -> Finding:
    """The fraction with 2ρ cos θ_1 − cos θ_2, and with the bracket 2ρ(cos θ_1 − cos θ_2)."""
    margin, cosine = margins()
    rest = (1 - RHO**2) / (2 * math.pi) / (denominator(ONE) * denominator(OTHER))
    return identity(
        rest * (2 * RHO * torch.cos(ONE) - torch.cos(OTHER)).abs(),
        margin.abs(),
        PAIRS,
        rest * (2 * RHO * cosine).abs(),
        "With the bracket 2ρ(cos θ_1 − cos θ_2)",
    )


def equation_47(setting: Setting) -> Finding:
    """Is the margin at least the bound with both denominators at angle 0?"""
    margin, cosine = margins()
    bound = largest_slope(RHO) * cosine
    kept = float((margin >= bound * (1 - 1e-9)).double().mean())
    reverse = float((margin <= bound * (1 + 1e-9)).double().mean())
    return Finding(
        judge(kept == 1),
        f"The inequality holds for {100 * kept:.1f} % of 5,490 pairs. 1 + ρ² − 2ρ is the smallest "
        "denominator, so its inverse bounds the margin from above: ≤ holds for "
        f"{100 * reverse:.1f} %.",
        {"share of pairs": kept},
    )


def bound_47() -> Tensor:
    """Return the printed bound, without the cosines."""
    return (1 - RHO**2) / (2 * math.pi) * 2 * RHO / (1 + RHO**2 - 2 * RHO) ** 2


def equation_48(setting: Setting) -> Finding:
    """The bound of Equation 47 against the slope at two angles of 0."""
    at_zero = RHO * (1 - RHO**2) / (math.pi * denominator(double(0.0)) ** 2)
    return identity(bound_47(), at_zero, "Three ρ")


def equation_49(setting: Setting) -> Finding:
    """The same, simplified to (ρ + ρ²)/(π(1 − ρ)³)."""
    return identity(largest_slope(RHO), bound_47(), "Three ρ")


def equation_50(setting: Setting) -> Finding:
    """Is factor·|Δcos| ≥ |Δcos| at ρ = 0.5 the same condition as factor ≥ 1, for every pair?"""
    cosine, factor = (torch.cos(ONE) - torch.cos(OTHER)).abs(), float(largest_slope(0.5))
    return Finding(
        judge(bool(((factor * cosine >= cosine) == (factor >= 1)).all())),
        f"At ρ = 0.5 the factor is {factor:.3f}; the condition is the same for all {PAIRS}.",
        {"factor": factor},
    )


def equation_51(setting: Setting) -> Finding:
    """The root of the factor at 1, by root finding."""
    root = threshold()
    return Finding(
        judge(abs(root - PRINTED_THRESHOLD) < 5e-6),
        f"(ρ + ρ²)/(π(1 − ρ)³) = 1 at ρ = {root:.10f}; printed {PRINTED_THRESHOLD:.5f}.",
        {"root": root},
    )


# Theorem 4: is the margin of the density larger than that of the cosine?


def theorem_4(setting: Setting) -> Finding:
    """Compare s·|f(θ_j) − f(θ_k)| with |cos θ_j − cos θ_k| for all pairs of angles."""
    angle = np.radians(np.linspace(0, LARGEST_ANGLE, 181))
    j, k = np.triu_indices(len(angle), 1)
    cosine = np.abs(np.cos(angle[j]) - np.cos(angle[k]))
    ratios, deviations = [], []
    for rho in CONCENTRATIONS:
        f = _density(rho, angle)
        ratios.append(np.abs(f[j] - f[k]) / cosine)
        deviations.append(np.abs(ratios[-1] / slope(rho, angle[j], angle[k]) - 1).max())
    smallest, largest = (float(SCALE * extreme(ratios)) for extreme in (np.min, np.max))
    root, any_pair = threshold(), smallest > 1
    pair = _counterexample(CONCENTRATIONS[len(CONCENTRATIONS) // 2])
    peak = 2 - math.sqrt(3)  # the smallest slope is largest where ρ² − 4ρ + 1 = 0
    best = smallest_slope(peak)
    enough = brentq(lambda rho: INATURALIST_SCALE * smallest_slope(rho) - 1, peak, 0.9999)
    nearer, farther = (float(_density(r, np.radians(d))) for r, d in ((0.9, 45.0), (0.5, 50.0)))
    example = (
        ". Counterexample: ρ = {:g}, θ_j = {:.0f}°, θ_k = {:.0f}°: the margin of f is {:.4f}, "
        "of cos {:.4f}".format(*pair.values())
    )
    return Finding(
        judge(any_pair and abs(root - PRINTED_THRESHOLD) < 5e-6),
        f"The printed factor reaches 1 at ρ = {root:.5f}. It is the largest slope of f against "
        "cos, met as both angles go to 0; a proof needs the smallest, (ρ − ρ²)/(π(1 + ρ)³), which "
        f"never exceeds {best:.4f}. Over all pairs up to {LARGEST_ANGLE:.0f}°, with "
        f"s = {SCALE:g}, the margin of f is {smallest:.3g} to {largest:.3g} times that of cos"
        + ("" if any_pair else example)
        + ". An s on f alone makes the claim true of any pair if s > π(1 + ρ)³/(ρ − ρ²), which is "
        f"at least {1 / best:.1f}; s = 250 is enough up to ρ = {enough:.3f}. The same s on cos "
        "changes nothing. With a ρ for each class even the sign can turn: ρ_j = 0.9 at 45° gives "
        f"f = {nearer:.4f}, ρ_k = 0.5 at 50° gives {farther:.4f}.",
        {
            "root of the printed factor": root,
            "smallest ratio of the margins": smallest,
            "largest ratio of the margins": largest,
            "deviation from f_j − f_k = K(cos θ_j − cos θ_k)": float(max(deviations)),
            **pair,
            "largest value of the smallest slope": best,
            "smallest s for any two angles": 1 / best,
            "ρ up to which s = 250 is enough": enough,
            "f at 45° with ρ = 0.9": nearer,
            "f at 50° with ρ = 0.5": farther,
        },
        (draw(setting.figures, "theorem-4", (9, 4), _paint_region),),
        (_region(),),
    )


def _density(rho: float, angle: Any) -> NDArray[np.float64]:
    return np.asarray(WrappedCauchy(double(rho)[0]).prob(torch.as_tensor(angle)))


def _counterexample(rho: float) -> dict[str, float]:
    """Return the multiples of 30° at which the margin of f falls furthest behind that of cos."""
    degrees = np.arange(0.0, 181.0, 30.0)
    j, k = np.triu_indices(len(degrees), 1)
    f, cosine = SCALE * _density(rho, np.radians(degrees)), np.cos(np.radians(degrees))
    worst = int(np.argmax(cosine[j] - cosine[k] - (f[j] - f[k])))
    j, k = j[worst], k[worst]
    return {
        "pair: ρ": rho,
        "pair: θ_j in degrees": float(degrees[j]),
        "pair: θ_k in degrees": float(degrees[k]),
        "pair: margin of f": float(f[j] - f[k]),
        "pair: margin of cos": float(cosine[j] - cosine[k]),
    }


def safe_angle(rho: float) -> float:
    """θ within which any two angles have K > 1: there D² = ρ(1 − ρ²)/π. 0 if there is none."""
    d = math.sqrt(rho * (1 - rho**2) / math.pi)
    return math.acos(min(1.0, max(-1.0, (1 + rho**2 - d) / (2 * rho))))


def share_of_pairs(rho: float) -> float:
    """Return the share of pairs of 720 angles, spread evenly, with K > 1."""
    middle = np.linspace(0, math.pi, 1441)[1::2]
    return float((slope(rho, middle[:, None], middle[None, :]) > 1).mean())


def _region() -> Table:
    columns = {
        "ρ": [f"{rho:g}" for rho in CONCENTRATIONS],
        "smallest slope": [f"{smallest_slope(rho):.4f}" for rho in CONCENTRATIONS],
        "largest slope": [f"{largest_slope(rho):.3g}" for rho in CONCENTRATIONS],
        "any two angles up to": [f"{math.degrees(safe_angle(r)):.1f}°" for r in CONCENTRATIONS],
        "share of all pairs": [f"{100 * share_of_pairs(r):.1f} %" for r in CONCENTRATIONS],
        "s for any pair": [f"{1 / smallest_slope(rho):.1f}" for rho in CONCENTRATIONS],
    }
    title = "Where the claim is true: D_j·D_k < s·ρ(1 − ρ²)/π with s = 1"
    return Table.of_columns(title, columns)


def _paint_region(figure: Figure) -> None:
    region, share = figure.subplots(1, 2)
    angle = np.linspace(0, math.pi, 721)
    degrees = np.degrees(angle)
    for rho, colour, line in zip((0.45, 0.6, 0.8, 0.95), COLOURS, LINES, strict=False):
        k = slope(rho, angle[:, None], angle[None, :])
        region.contour(degrees, degrees, k, [1.0], colors=[colour], linestyles=[line])
        region.plot([], [], color=colour, linestyle=line, label=f"ρ = {rho:g}")
    region.set(xlim=(0, 120), xlabel="angle to one class (degrees)", aspect="equal")
    region.set(ylim=(0, 120), ylabel="angle to the other class (degrees)")
    region.set_title("The claim is true below each curve")
    region.legend(loc="upper right")
    concentrations = np.linspace(0.3, 0.995, 140)
    share.plot(concentrations, [100 * share_of_pairs(float(rho)) for rho in concentrations])
    share.axvline(threshold(), color=COLOURS[1], linestyle="--", linewidth=1)
    units: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    look = {"color": COLOURS[1], "va": "top"}
    share.annotate("the paper's\nthreshold", (threshold(), 0.95), (6, 0), **units, **look)
    share.set(xlim=(0.3, 1), xlabel="concentration ρ")
    share.set(ylim=(0, None), ylabel="share of all pairs of angles (%)")
    share.set_title("Pairs of angles for which the claim is true")


# The appendix's curve of the margin factor against ρ.


def figure_6(setting: Setting) -> Finding:
    """Does the margin of one pair of angles grow with ρ, as the curve does?"""
    rho = np.linspace(0.001, 0.999, 999)
    curve_grows = bool((np.diff(largest_slope(rho)) > 0).all())
    of_pair = slope(rho, *np.radians(PAIR))
    peak, pair_grows = float(rho[of_pair.argmax()]), bool((np.diff(of_pair) > 0).all())
    falls = (
        f"is largest at ρ = {peak:.2f}, where it is {of_pair.max():.3f}, and falls to 0 as ρ goes "
        "to 1: a larger ρ is not a larger margin."
    )
    return Finding(
        judge(curve_grows and pair_grows, curve_grows),
        f"The curve grows with ρ and crosses 1 at {threshold():.5f}. It is the slope at angle 0; "
        f"between {PAIR[0]:g}° and {PAIR[1]:g}° the slope "
        + ("grows with ρ too." if pair_grows else falls),
        {
            "root of the curve at 1": threshold(),
            "ρ of the pair's largest slope": peak,
            "the pair's largest slope": float(of_pair.max()),
        },
        (draw(setting.figures, "figure-6", (6, 4), _paint_curves),),
    )


def _paint_curves(figure: Figure) -> None:
    axes = figure.subplots()
    rho, root = np.linspace(0.01, 0.99, 400), threshold()
    axes.plot(rho, largest_slope(rho), label="both angles 0°, the paper's curve")
    for pair in ((15.0, 30.0), (30.0, 90.0)):
        axes.plot(rho, slope(rho, *np.radians(pair)), label="{:g}° and {:g}°".format(*pair))
    axes.plot(rho, smallest_slope(rho), label="both angles 180°, the smallest")
    axes.axhline(1, color="0.5", linestyle="-", linewidth=0.8)
    axes.plot(root, 1, "o", color=COLOURS[0], linestyle="none")
    label = f"ρ = {root:.5f}"
    axes.annotate(label, (root, 1), (-8, 8), textcoords="offset points", ha="right")
    axes.set(xlim=(0, 1), xlabel="concentration ρ")
    axes.set(yscale="log", ylim=(1e-3, 1e5), ylabel="margin of f ÷ margin of cos")
    axes.legend(loc="upper left")

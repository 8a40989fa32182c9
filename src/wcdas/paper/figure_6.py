"""The appendix's curve of the margin factor against ρ."""

import math

import numpy as np
from matplotlib.figure import Figure

from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.margin import Array, largest_slope, slope, smallest_slope, threshold
from wcdas.report.style import COLOURS, draw

PAIRS = {"15° and 30°": (15.0, 30.0), "30° and 90°": (30.0, 90.0)}


def check(setting: Setting, pair: tuple[float, float] = PAIRS["30° and 90°"]) -> Finding:
    """Does the margin of one pair of angles (in degrees) grow with ρ, as the curve does?"""
    rho = np.linspace(0.001, 0.999, 999)
    curve_grows = bool((np.diff(largest_slope(rho)) > 0).all())
    of_pair = _of_pair(rho, pair)
    peak = float(rho[of_pair.argmax()])
    pair_grows = bool((np.diff(of_pair) > 0).all())
    sentence = (
        f"The curve grows with ρ and crosses 1 at {threshold():.5f}. It is the slope at angle 0; "
        f"between {pair[0]:g}° and {pair[1]:g}° the slope "
        + (
            "grows with ρ too."
            if pair_grows
            else f"is largest at ρ = {peak:.2f}, where it is {of_pair.max():.3f}, and falls to 0 "
            "as ρ goes to 1: a larger ρ is not a larger margin."
        )
    )
    numbers = {
        "root of the curve at 1": threshold(),
        "ρ of the pair's largest slope": peak,
        "the pair's largest slope": float(of_pair.max()),
    }
    figure = draw(setting.figures, "figure-6", (6, 4), _paint)
    return Finding(judge(curve_grows and pair_grows, curve_grows), sentence, numbers, (figure,))


def _of_pair(rho: Array, pair: tuple[float, float]) -> Array:
    return slope(rho, math.radians(pair[0]), math.radians(pair[1]))


def _paint(figure: Figure) -> None:
    axes = figure.subplots()
    rho = np.linspace(0.01, 0.99, 400)
    axes.plot(rho, largest_slope(rho), label="both angles 0°, the paper's curve")
    for label, pair in PAIRS.items():
        axes.plot(rho, _of_pair(rho, pair), label=label)
    axes.plot(rho, smallest_slope(rho), label="both angles 180°, the smallest")
    axes.axhline(1, color="0.5", linestyle="-", linewidth=0.8)
    axes.plot(threshold(), 1, "o", color=COLOURS[0], linestyle="none")
    axes.annotate(
        f"ρ = {threshold():.5f}", (threshold(), 1), (-8, 8), textcoords="offset points", ha="right"
    )
    axes.set(
        yscale="log",
        xlim=(0, 1),
        ylim=(1e-3, 1e5),
        xlabel="concentration ρ",
        ylabel="margin of f ÷ margin of cos",
    )
    axes.legend(loc="upper left")


CLAIMS = (
    Claim(
        "figure-6",
        "Appendix A.5, the figure of the margin factor",
        "(ρ + ρ²)/(π(1 − ρ)³) grows with ρ: the larger ρ, the larger the margin.",
        "a second",
        check,
        "growth on 999 values of ρ",
    ),
)

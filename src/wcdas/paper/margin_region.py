"""The pairs of angles for which the margin of f exceeds that of cos, as a function of ρ."""

import math

import numpy as np
from matplotlib.figure import Figure

from wcdas.paper.claim import Table
from wcdas.paper.margin import largest_slope, safe_angle, slope, smallest_slope, threshold
from wcdas.report.style import COLOURS, LINES

SHOWN = (0.45, 0.6, 0.8, 0.95)


def share_of_pairs(rho: float, count: int = 720) -> float:
    """The share of pairs of angles, spread evenly, with K > 1."""
    middle = np.linspace(0, math.pi, 2 * count + 1)[1::2]
    return float((slope(rho, middle[:, None], middle[None, :]) > 1).mean())


def region_table(concentrations: tuple[float, ...]) -> Table:
    return Table(
        "Where the claim is true: D_j·D_k < s·ρ(1 − ρ²)/π with s = 1",
        (
            "ρ",
            "smallest slope",
            "largest slope",
            "any two angles up to",
            "share of all pairs",
            "s for any pair",
        ),
        tuple(
            (
                f"{rho:g}",
                f"{float(smallest_slope(rho)):.4f}",
                f"{float(largest_slope(rho)):.3g}",
                f"{math.degrees(safe_angle(rho)):.1f}°",
                f"{100 * share_of_pairs(rho):.1f} %",
                f"{1 / float(smallest_slope(rho)):.1f}",
            )
            for rho in concentrations
        ),
    )


def paint_region(figure: Figure) -> None:
    region, share = figure.subplots(1, 2)
    angle = np.linspace(0, math.pi, 721)
    degrees = np.degrees(angle)
    for rho, colour, line in zip(SHOWN, COLOURS, LINES, strict=False):
        k = slope(rho, angle[:, None], angle[None, :])
        region.contour(degrees, degrees, k, [1.0], colors=[colour], linestyles=[line])
        region.plot([], [], color=colour, linestyle=line, label=f"ρ = {rho:g}")
    region.set(
        xlim=(0, 120),
        ylim=(0, 120),
        aspect="equal",
        xlabel="angle to one class (degrees)",
        ylabel="angle to the other class (degrees)",
        title="The claim is true below each curve",
    )
    region.legend(loc="upper right")
    concentrations = np.linspace(0.3, 0.995, 140)
    share.plot(concentrations, [100 * share_of_pairs(float(rho)) for rho in concentrations])
    share.axvline(threshold(), color=COLOURS[1], linestyle="--", linewidth=1)
    share.annotate(
        "the paper's\nthreshold",
        (threshold(), 0.95),
        (6, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        color=COLOURS[1],
    )
    share.set(
        xlim=(0.3, 1),
        ylim=(0, None),
        xlabel="concentration ρ",
        ylabel="share of all pairs of angles (%)",
        title="Pairs of angles for which the claim is true",
    )

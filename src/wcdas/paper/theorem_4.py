"""Theorem 4: is the margin of the wrapped Cauchy density larger than that of the cosine?"""

import math

import numpy as np
import torch
from scipy.optimize import brentq

from wcdas.circular import WrappedCauchy
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.margin import PRINTED_THRESHOLD, Array, slope, smallest_slope, threshold
from wcdas.paper.margin_region import paint_region, region_table
from wcdas.report.style import draw

CONCENTRATIONS = (0.4234, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
INATURALIST_SCALE = 250.0
ANGLES = 181


def check(
    setting: Setting,
    concentrations: tuple[float, ...] = CONCENTRATIONS,
    largest_angle: float = math.pi,
    scale: float = 1.0,
) -> Finding:
    """Compare s·|f(θ_j) − f(θ_k)| with |cos θ_j − cos θ_k| for all pairs up to `largest_angle`."""
    angle = np.linspace(0, largest_angle, ANGLES)
    ratios = np.stack([scale * _ratios(rho, angle) for rho in concentrations])
    smallest, largest, root = float(ratios.min()), float(ratios.max()), threshold()
    any_pair = smallest > 1
    pair = _counterexample(concentrations[len(concentrations) // 2], scale)
    scales, classes = _what_the_scale_changes(), _class_wise()
    numbers = {
        "root of the printed factor": root,
        "smallest ratio of the margins": smallest,
        "largest ratio of the margins": largest,
        "deviation from f_j − f_k = K(cos θ_j − cos θ_k)": max(
            _deviation(rho, angle) for rho in concentrations
        ),
        **pair,
        **scales,
        **classes,
    }
    found = (
        f"The printed factor reaches 1 at ρ = {root:.5f}. It is the largest slope of f against "
        "cos, met as both angles go to 0; a proof needs the smallest, (ρ − ρ²)/(π(1 + ρ)³), which "
        f"never exceeds {scales['largest value of the smallest slope']:.4f}. Over all pairs up to "
        f"{math.degrees(largest_angle):.0f}°, with s = {scale:g}, the margin of f is "
        f"{smallest:.3g} to {largest:.3g} times that of cos"
    )
    example = (
        ". Counterexample: ρ = {:g}, θ_j = {:.0f}°, θ_k = {:.0f}°: the margin of f is {:.4f}, "
        "of cos {:.4f}".format(*pair.values())
    )
    rest = (
        ". An s on f alone makes the claim true of any pair if s > π(1 + ρ)³/(ρ − ρ²), which is at "
        "least {1:.1f}; s = 250 is enough up to ρ = {2:.3f}. The same s on cos changes nothing"
        ". With a ρ for each class even the sign can turn: ρ_j = 0.9 at 45° gives f = {3:.4f}, "
        "ρ_k = 0.5 at 50° gives {4:.4f}.".format(*scales.values(), *classes.values())
    )
    return Finding(
        judge(any_pair and abs(root - PRINTED_THRESHOLD) < 5e-6),
        found + ("" if any_pair else example) + rest,
        numbers,
        (draw(setting.figures, "theorem-4", (9, 4), paint_region),),
        (region_table(concentrations),),
    )


def _density(rho: float, angle: Array) -> Array:
    density = WrappedCauchy(torch.tensor(rho, dtype=torch.float64)).prob(torch.as_tensor(angle))
    return np.asarray(density)


def _ratios(rho: float, angle: Array) -> Array:
    """|f(θ_j) − f(θ_k)| / |cos θ_j − cos θ_k| for θ_j < θ_k, from the density itself."""
    j, k = np.triu_indices(len(angle), 1)
    f, cosine = _density(rho, angle), np.cos(angle)
    return np.asarray(np.abs(f[j] - f[k]) / np.abs(cosine[j] - cosine[k]))


def _deviation(rho: float, angle: Array) -> float:
    j, k = np.triu_indices(len(angle), 1)
    return float(np.abs(_ratios(rho, angle) / slope(rho, angle[j], angle[k]) - 1).max())


def _counterexample(rho: float, scale: float) -> dict[str, float]:
    """The pair of multiples of 30° at which the margin of f falls furthest behind that of cos."""
    degrees = np.arange(0.0, 181.0, 30.0)
    j, k = np.triu_indices(len(degrees), 1)
    f, cosine = scale * _density(rho, np.radians(degrees)), np.cos(np.radians(degrees))
    worst = int(np.argmax(cosine[j] - cosine[k] - (f[j] - f[k])))
    j, k = j[worst], k[worst]
    return {
        "pair: ρ": rho,
        "pair: θ_j in degrees": float(degrees[j]),
        "pair: θ_k in degrees": float(degrees[k]),
        "pair: margin of f": float(f[j] - f[k]),
        "pair: margin of cos": float(cosine[j] - cosine[k]),
    }


def _what_the_scale_changes() -> dict[str, float]:
    peak = 2 - math.sqrt(3)  # the smallest slope is largest where ρ² − 4ρ + 1 = 0
    best = float(smallest_slope(peak))
    enough = brentq(lambda rho: INATURALIST_SCALE * float(smallest_slope(rho)) - 1, peak, 0.9999)
    return {
        "largest value of the smallest slope": best,
        "smallest s for any two angles": 1 / best,
        "ρ up to which s = 250 is enough": float(enough),
    }


def _class_wise() -> dict[str, float]:
    return {
        "f at 45° with ρ = 0.9": float(_density(0.9, np.radians(45.0))),
        "f at 50° with ρ = 0.5": float(_density(0.5, np.radians(50.0))),
    }


CLAIMS = (
    Claim(
        "theorem-4",
        "Section 3.3, Theorem 4",
        "For ρ in (0.42332, 1) the margin |f(θ_j) − f(θ_k)| is larger than |cos θ_j − cos θ_k| "
        "for any two angles.",
        "a second",
        check,
        "threshold to five digits; margins compared pair by pair",
    ),
)

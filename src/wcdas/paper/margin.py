"""The margin of the wrapped Cauchy density beside the margin of the cosine.

    f(θ_j) − f(θ_k) = K · (cos θ_j − cos θ_k)
    K(ρ, θ_j, θ_k) = ρ(1 − ρ²) / (π D_j D_k),   D = 1 + ρ² − 2ρ cos θ

This is exact. D grows with the angle, so K is largest where both angles go to 0, and smallest where
both go to π.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]

PRINTED_THRESHOLD = 0.42332


def slope(rho: float | Array, angle_j: float | Array, angle_k: float | Array) -> Array:
    """K(ρ, θ_j, θ_k)."""
    d_j = 1 + rho**2 - 2 * rho * np.cos(angle_j)
    d_k = 1 + rho**2 - 2 * rho * np.cos(angle_k)
    return np.asarray(rho * (1 - rho**2) / (math.pi * d_j * d_k))


def largest_slope(rho: float | Array) -> Array:
    """(ρ + ρ²) / (π(1 − ρ)³), the factor that the paper prints."""
    return np.asarray((rho + rho**2) / (math.pi * (1 - rho) ** 3))


def smallest_slope(rho: float | Array) -> Array:
    """(ρ − ρ²) / (π(1 + ρ)³)."""
    return np.asarray((rho - rho**2) / (math.pi * (1 + rho) ** 3))


def threshold(factor: Callable[[float], Array] = largest_slope) -> float:
    """ρ at which an increasing factor reaches 1."""
    return float(brentq(lambda rho: float(factor(rho)) - 1, 1e-6, 1 - 1e-6, xtol=1e-14))


def safe_angle(rho: float, scale: float = 1.0) -> float:
    """θ within which any two angles have s·K > 1: there D² = s·ρ(1 − ρ²)/π. 0 if there is none."""
    d = math.sqrt(scale * rho * (1 - rho**2) / math.pi)
    return math.acos(min(1.0, max(-1.0, (1 + rho**2 - d) / (2 * rho))))

"""Distributions on the circle, in the manner of `torch.distributions`.

The symmetric wrapped stable family of the paper with its two members in closed form, wrapped
Cauchy and wrapped Normal; the von Mises distribution; mixtures of them; and the least-square error
Δ by which the paper compares how well one family fits another. Angles are in radians, parameters
broadcast, and everything is differentiable in the precision of the parameters.
"""

from wcdas.circular.distribution import CircularDistribution
from wcdas.circular.least_squares import least_square_error
from wcdas.circular.mixture import Mixture
from wcdas.circular.von_mises import VonMises, concentration_from_variance
from wcdas.circular.wrapped import SymmetricWrappedStable, WrappedCauchy, WrappedNormal

__all__ = [
    "CircularDistribution",
    "Mixture",
    "SymmetricWrappedStable",
    "VonMises",
    "WrappedCauchy",
    "WrappedNormal",
    "concentration_from_variance",
    "least_square_error",
]

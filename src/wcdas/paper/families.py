"""The two families of the paper, and how a sentence calls them."""

from wcdas.circular import CircularDistribution, WrappedCauchy, WrappedNormal

Family = type[CircularDistribution]
_NAMES: dict[Family, str] = {WrappedCauchy: "wrapped Cauchy", WrappedNormal: "wrapped Normal"}


def spelled(family: Family) -> str:
    return _NAMES.get(family, family.__name__)

"""Methods: what `--method` names."""

from wcdas.methods.angular_softmax import ANGULAR_SOFTMAX
from wcdas.methods.base import Method
from wcdas.methods.softmax import SOFTMAX
from wcdas.methods.wcdas import WCDAS, WCDAS_META
from wcdas.methods.wcdas_prior import WCDAS_PRIOR

METHODS: dict[str, Method] = {
    "softmax": SOFTMAX,
    "angular-softmax": ANGULAR_SOFTMAX,
    "wcdas": WCDAS,
    "wcdas-meta": WCDAS_META,
    "wcdas-prior": WCDAS_PRIOR,
}


def list_methods() -> list[str]:
    """The names `--method` knows."""
    return list(METHODS)


__all__ = ["METHODS", "Method", "list_methods"]

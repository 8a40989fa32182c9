"""Methods: what `--method` names."""

from wcdas.errors import unknown
from wcdas.methods import table
from wcdas.methods.center_loss import CENTER_LOSS
from wcdas.methods.classifier import Classifier
from wcdas.methods.decoupling import NCM, TAU_NORM
from wcdas.methods.equilibrium import EQUILIBRIUM
from wcdas.methods.gaussian_affinity import GAUSSIAN_AFFINITY
from wcdas.methods.hybrid_contrastive import HYBRID_CONTRASTIVE, HYBRID_CONTRASTIVE_WCDAS
from wcdas.methods.meta_weight_net import META_WEIGHT_NET
from wcdas.methods.method import Method, Parts, StageStart, StepBatch, StepState
from wcdas.methods.oltr import OLTR
from wcdas.methods.paco import PACO, PACO_WCDAS
from wcdas.methods.ride import RIDE, RIDE_WCDAS
from wcdas.methods.sade import SADE, SADE_WCDAS

METHODS: dict[str, Method] = {
    "softmax": table.SOFTMAX,
    "softmax-two-stage": table.SOFTMAX_TWO_STAGE,
    "focal": table.FOCAL,
    "class-balanced": table.CLASS_BALANCED,
    "equalization": table.EQUALIZATION,
    "ldam-drw": table.LDAM_DRW,
    "crt": table.CRT,
    "lws": table.LWS,
    "tau-norm": TAU_NORM,
    "ncm": NCM,
    "balms": table.BALMS,
    "oltr": OLTR,
    "center-loss": CENTER_LOSS,
    "angular-softmax": table.ANGULAR_SOFTMAX,
    "angular-softmax-one-stage": table.ANGULAR_SOFTMAX_ONE_STAGE,
    "l-softmax": table.L_SOFTMAX,
    "am-softmax": table.AM_SOFTMAX,
    "arcface": table.ARCFACE,
    "sphereface": table.SPHEREFACE,
    "t-vmf": table.T_VMF,
    "wndas": table.WNDAS,
    "wndas-single": table.WNDAS_SINGLE,
    "wcdas-single": table.WCDAS_SINGLE,
    "wcdas": table.WCDAS,
    "wcdas-meta": table.WCDAS_META,
    "wcdas-prior": table.WCDAS_PRIOR,
    "equilibrium": EQUILIBRIUM,
    "meta-weight-net": META_WEIGHT_NET,
    "gaussian-affinity": GAUSSIAN_AFFINITY,
    "ride": RIDE,
    "ride-wcdas": RIDE_WCDAS,
    "sade": SADE,
    "sade-wcdas": SADE_WCDAS,
    "paco": PACO,
    "paco-wcdas": PACO_WCDAS,
    "hybrid-contrastive": HYBRID_CONTRASTIVE,
    "hybrid-contrastive-wcdas": HYBRID_CONTRASTIVE_WCDAS,
}

_SHIPPED = dict(METHODS)


def is_shipped(name: str) -> bool:
    """Tell whether a name is the same in every process: no script registered another method."""
    return METHODS[name] is _SHIPPED.get(name)


def find_method(name: str) -> Method:
    """The method of a name; one of your own has to be in METHODS."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def list_methods() -> list[str]:
    """The names `--method` knows."""
    return list(METHODS)


__all__ = [
    "METHODS",
    "Classifier",
    "Method",
    "Parts",
    "StageStart",
    "StepBatch",
    "StepState",
    "find_method",
    "is_shipped",
    "list_methods",
]

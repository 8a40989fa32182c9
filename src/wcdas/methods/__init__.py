"""Methods: what `--method` names."""

from wcdas.errors import unknown
from wcdas.methods.am_softmax import AM_SOFTMAX
from wcdas.methods.angular_softmax import ANGULAR_SOFTMAX, ANGULAR_SOFTMAX_ONE_STAGE
from wcdas.methods.arcface import ARCFACE
from wcdas.methods.balms import BALMS
from wcdas.methods.base import Method
from wcdas.methods.center_loss import CENTER_LOSS
from wcdas.methods.class_balanced import CLASS_BALANCED
from wcdas.methods.classifier import Classifier
from wcdas.methods.crt import CRT
from wcdas.methods.equalization import EQUALIZATION
from wcdas.methods.equilibrium import EQUILIBRIUM
from wcdas.methods.focal import FOCAL
from wcdas.methods.gaussian_affinity import GAUSSIAN_AFFINITY
from wcdas.methods.hybrid_contrastive import HYBRID_CONTRASTIVE, HYBRID_CONTRASTIVE_WCDAS
from wcdas.methods.l_softmax import L_SOFTMAX
from wcdas.methods.ldam_drw import LDAM_DRW
from wcdas.methods.lws import LWS
from wcdas.methods.meta_weight_net import META_WEIGHT_NET
from wcdas.methods.method import Parts, StageStart, StepBatch, StepState
from wcdas.methods.ncm import NCM
from wcdas.methods.oltr import OLTR
from wcdas.methods.paco import PACO, PACO_WCDAS
from wcdas.methods.ride import RIDE, RIDE_WCDAS
from wcdas.methods.sade import SADE, SADE_WCDAS
from wcdas.methods.softmax import SOFTMAX, SOFTMAX_TWO_STAGE
from wcdas.methods.sphereface import SPHEREFACE
from wcdas.methods.t_vmf import T_VMF
from wcdas.methods.tau_norm import TAU_NORM
from wcdas.methods.wcdas import WCDAS, WCDAS_META, WCDAS_SINGLE
from wcdas.methods.wcdas_prior import WCDAS_PRIOR
from wcdas.methods.wndas import WNDAS, WNDAS_SINGLE

METHODS: dict[str, Method] = {
    "softmax": SOFTMAX,
    "softmax-two-stage": SOFTMAX_TWO_STAGE,
    "focal": FOCAL,
    "class-balanced": CLASS_BALANCED,
    "equalization": EQUALIZATION,
    "ldam-drw": LDAM_DRW,
    "crt": CRT,
    "lws": LWS,
    "tau-norm": TAU_NORM,
    "ncm": NCM,
    "balms": BALMS,
    "oltr": OLTR,
    "center-loss": CENTER_LOSS,
    "angular-softmax": ANGULAR_SOFTMAX,
    "angular-softmax-one-stage": ANGULAR_SOFTMAX_ONE_STAGE,
    "l-softmax": L_SOFTMAX,
    "am-softmax": AM_SOFTMAX,
    "arcface": ARCFACE,
    "sphereface": SPHEREFACE,
    "t-vmf": T_VMF,
    "wndas": WNDAS,
    "wndas-single": WNDAS_SINGLE,
    "wcdas-single": WCDAS_SINGLE,
    "wcdas": WCDAS,
    "wcdas-meta": WCDAS_META,
    "wcdas-prior": WCDAS_PRIOR,
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
    """Whether a name means the same in every process: no script has registered another method."""
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

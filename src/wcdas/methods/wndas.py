"""The paper's ablation: the wrapped Normal in place of the wrapped Cauchy."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

WNDAS = Method(
    summary="wrapped Normal head, a concentration for every class, two stages",
    paper="Han, 2023 (ICML)",
    reported="ImageNet-LT, ResNet-10: 42.3",
    defaults={
        "head": {"name": "wndas", "start": "paper"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

WNDAS_SINGLE = Method(
    summary="wrapped Normal head, one concentration for all classes, two stages",
    paper="Han, 2023 (ICML)",
    reported="ImageNet-LT, ResNet-10: 42.1",
    defaults={
        "head": {"name": "wndas", "per_class": False, "start": "paper"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

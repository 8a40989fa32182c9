"""The two headline rows of the paper, and one concentration for all classes."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

WCDAS = Method(
    summary="wrapped Cauchy head, two stages, the second class-balanced",
    paper="Han, 2023 (ICML)",
    reported="CIFAR-100-LT IF 100, ResNet-32: 52.5; ImageNet-LT, ResNet-10: 44.5",
    defaults={
        "head": {"name": "wcdas", "start": "paper"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

WCDAS_SINGLE = Method(
    summary="wrapped Cauchy head, one concentration for all classes, two stages",
    paper="Han, 2023 (ICML)",
    reported="ImageNet-LT, ResNet-10: 43.8",
    defaults={
        "head": {"name": "wcdas", "per_class": False, "start": "paper"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

WCDAS_META = Method(
    summary="wrapped Cauchy head, two stages, the second with the learned sampler of BALMS",
    paper="Han, 2023 (ICML); Ren et al., 2020 (arXiv:2007.10740)",
    reported="ImageNet-LT, ResNet-10: 44.1",
    defaults={
        "head": {"name": "wcdas", "start": "paper"},
        "stages": {
            "representation": REPRESENTATION,
            "classifier": CLASSIFIER | {"sampler": "meta", "sampler_options": {"lr": 0.01}},
        },
    },
)

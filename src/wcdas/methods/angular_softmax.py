"""Softmax of a scaled cosine."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

ANGULAR_SOFTMAX = Method(
    summary="scaled cosine, two stages: the paper's angular baseline",
    paper="Han, 2023, Equation 2",
    reported="CIFAR-100-LT IF 100, ResNet-32: 49.7; ImageNet-LT, ResNet-10: 38.7",
    defaults={
        "head": {"name": "cosine", "start": "paper"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

ANGULAR_SOFTMAX_ONE_STAGE = Method(
    summary="scaled cosine, one stage",
    paper="Han, 2023, Equation 2",
    defaults={
        "head": {"name": "cosine", "start": "paper"},
        "stages": {"representation": REPRESENTATION},
    },
)

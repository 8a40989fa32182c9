"""Additive margin softmax."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

AM_SOFTMAX = Method(
    summary="cos θ − 0.35 for the own class, s = 30, two stages",
    paper="Wang et al., 2018 (arXiv:1801.05599)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 50.1",
    defaults={
        "head": {"name": "am-softmax", "margin": 0.35, "scale": 30.0},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

"""t-vMF similarity."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

T_VMF = Method(
    summary="heavy-tailed von Mises–Fisher similarity, κ = 16, two stages",
    paper="Kobayashi, 2021 (CVPR)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 50.3",
    defaults={
        "head": {"name": "t-vmf", "kappa": 16.0, "start": "paper"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

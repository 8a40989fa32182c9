"""Focal loss."""

from wcdas.methods.base import REPRESENTATION, Method

FOCAL = Method(
    summary="cross-entropy that fades where the network is sure, γ = 2, one stage",
    paper="Lin et al., 2017 (arXiv:1708.02002)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 43.8",
    defaults={
        "head": {"name": "linear"},
        "stages": {
            "representation": REPRESENTATION | {"loss": "focal", "loss_options": {"gamma": 2.0}}
        },
    },
)

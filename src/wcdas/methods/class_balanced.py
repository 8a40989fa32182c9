"""Class-balanced loss."""

from wcdas.methods.base import REPRESENTATION, Method

CLASS_BALANCED = Method(
    summary="cross-entropy weighted by the inverse effective number of images, one stage",
    paper="Cui et al., 2019 (arXiv:1901.05555)",
    reported="CIFAR-100-LT IF 100, ResNet-32, best of its losses: 39.6",
    defaults={
        "head": {"name": "linear"},
        "stages": {
            "representation": REPRESENTATION
            | {"loss": "class-balanced", "loss_options": {"beta": 0.9999}}
        },
    },
)

"""LDAM with deferred re-weighting: margins for rare classes, and in the end weights too.

Cao et al., "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss", 2019
(arXiv:1906.07413).
"""

from wcdas.methods.method import REPRESENTATION, Method

LDAM = {"max_margin": 0.5, "scale": 30.0}

LDAM_DRW = Method(
    summary="margins C/n^¼, and class weights in the last fifth of the epochs",
    paper="Cao et al., 2019 (arXiv:1906.07413)",
    reported="CIFAR-100-LT IF 100, ResNet-32: 42.0; CIFAR-10-LT IF 100: 77.0",
    defaults={
        "head": {"name": "cosine", "scale": 30.0},
        # One stage goes on as another, momentum and schedule too, with class weights.
        "stages": {
            "representation": REPRESENTATION | {"loss": "ldam", "loss_options": LDAM},
            "reweighting": {
                "optimizer": "continue",
                "share": 0.2,
                "loss_options": LDAM | {"beta": 0.9999},
            },
        },
    },
)

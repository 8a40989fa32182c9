"""LDAM with deferred re-weighting."""

from wcdas.methods.base import REPRESENTATION, Method

MARGINS = {"max_margin": 0.5, "scale": 30.0}
HEAD = {"name": "cosine", "scale": 30.0}
# One stage goes on as another, momentum and schedule too, with class weights.
STAGES = {
    "representation": REPRESENTATION | {"loss": "ldam", "loss_options": MARGINS},
    "reweighting": {
        "optimizer": "continue",
        "share": 0.2,
        "loss_options": MARGINS | {"beta": 0.9999},
    },
}

LDAM_DRW = Method(
    summary="margins C/n^¼, and class weights in the last fifth of the epochs",
    paper="Cao et al., 2019 (arXiv:1906.07413)",
    reported="CIFAR-100-LT IF 100, ResNet-32: 42.0; CIFAR-10-LT IF 100: 77.0",
    defaults={"head": HEAD, "stages": STAGES},
)

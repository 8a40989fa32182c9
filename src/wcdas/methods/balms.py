"""Balanced meta-softmax."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

BALMS = Method(
    summary="balanced softmax, then a fresh classifier with a learned sampler",
    paper="Ren et al., 2020 (arXiv:2007.10740)",
    reported="CIFAR-100-LT IF 100, ResNet-32: 50.8; CIFAR-10-LT IF 100: 84.9",
    defaults={
        "head": {"name": "linear"},
        "stages": {
            # Balanced softmax is cross-entropy with the class prior in it.
            "representation": REPRESENTATION | {"prior": 1.0},
            "classifier": CLASSIFIER
            | {"head": "fresh", "prior": 1.0, "sampler": "meta", "sampler_options": {"lr": 0.01}},
        },
    },
)

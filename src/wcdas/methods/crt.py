"""Classifier re-training."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

CRT = Method(
    summary="softmax, then a fresh classifier trained on class-balanced batches",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    reported="ImageNet-LT, ResNet-10: 41.8",
    defaults={
        "head": {"name": "linear"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER | {"head": "fresh"}},
    },
)

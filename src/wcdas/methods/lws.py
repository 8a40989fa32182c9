"""Learnable weight scaling."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

LWS = Method(
    summary="softmax, then one learned scale for every class on class-balanced batches",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    reported="ImageNet-LT, ResNet-10: 41.4",
    defaults={
        "head": {"name": "linear", "bias": False},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER | {"head": "lws"}},
    },
)

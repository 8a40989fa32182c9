"""Nearest class mean."""

from wcdas.heads.oltr import class_means
from wcdas.methods.base import REPRESENTATION, Method
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import StageStart


def set_means(model: Classifier, start: StageStart) -> None:
    """Let the cosine head compare with the mean feature of every class."""
    if start.stage == "classifier":
        features, labels = start.features()
        model.head.weight.copy_(class_means(features, labels, model.head.num_classes)[0])


NCM = Method(
    summary="softmax, then the class whose mean feature has the smallest angle",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    defaults={
        "head": {"name": "linear"},
        "stages": {
            "representation": REPRESENTATION,
            "classifier": {"trains": "nothing", "head": "cosine"},
        },
    },
    begin_stage=set_means,
)

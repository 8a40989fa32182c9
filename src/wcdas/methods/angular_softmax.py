"""Angular softmax."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

ANGULAR_SOFTMAX = Method(
    summary="scaled cosine, two stages: the paper's angular baseline",
    paper="Han, 2023, Equation 2",
    defaults={
        "head": {"name": "cosine"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

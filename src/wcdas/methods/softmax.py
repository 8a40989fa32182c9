"""The baseline, and the same with a second stage."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

SOFTMAX = Method(
    summary="linear classifier with cross-entropy, one stage: the baseline",
    paper="—",
    defaults={"head": {"name": "linear"}, "stages": {"representation": REPRESENTATION}},
)

SOFTMAX_TWO_STAGE = Method(
    summary="linear classifier, two stages, the second class-balanced",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    defaults={
        "head": {"name": "linear"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

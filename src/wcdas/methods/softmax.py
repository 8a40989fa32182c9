"""Softmax."""

from wcdas.methods.base import REPRESENTATION, Method

SOFTMAX = Method(
    summary="linear classifier with cross-entropy, one stage: the baseline",
    paper="—",
    defaults={"head": {"name": "linear"}, "stages": {"representation": REPRESENTATION}},
)

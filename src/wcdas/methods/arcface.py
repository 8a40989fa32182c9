"""ArcFace."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

ARCFACE = Method(
    summary="cos(θ + 0.5) for the own class, s = 64, two stages",
    paper="Deng et al., 2019 (arXiv:1801.07698)",
    defaults={
        "head": {"name": "arcface", "margin": 0.5, "scale": 64.0},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

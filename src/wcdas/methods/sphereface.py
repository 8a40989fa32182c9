"""SphereFace."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

# The authors' schedule, over their 28,000 iterations.
ANNEALING = {"base": 1000.0, "gamma": 0.12, "power": 1.0, "minimum": 5.0, "iterations": 28_000}

SPHEREFACE = Method(
    summary="angle to the own class times m = 4, unit weights, λ from 1,000 to 5, two stages",
    paper="Liu et al., 2017 (arXiv:1704.08063)",
    defaults={
        "head": {"name": "sphereface", "margin": 4},
        "stages": {
            "representation": REPRESENTATION | {"annealing": ANNEALING},
            "classifier": CLASSIFIER,
        },
    },
)

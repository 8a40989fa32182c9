"""ArcFace.

The authors' networks end in features around zero. Those of a ResNet are positive, all in one narrow
cone, where the whole margin from the first step on draws every feature and every weight to one
direction, at which the loss stays. So the margin grows while the network learns.
"""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method
from wcdas.methods.l_softmax import ANNEALING

ARCFACE = Method(
    summary="cos(θ + 0.5) for the own class, s = 64, λ from 1,000 to 0, two stages",
    paper="Deng et al., 2019 (arXiv:1801.07698)",
    defaults={
        "head": {"name": "arcface", "margin": 0.5, "scale": 64.0},
        "stages": {
            "representation": REPRESENTATION | {"annealing": ANNEALING},
            "classifier": CLASSIFIER,
        },
    },
)

"""Large-margin softmax."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

# As in the authors' CIFAR-10 example, over 20,000 iterations.
ANNEALING = {"base": 1000.0, "gamma": 0.000025, "power": 35.0, "iterations": 20_000}

L_SOFTMAX = Method(
    summary="angle to the own class times m = 4, λ from 1,000 to 0, two stages",
    paper="Liu et al., 2016 (arXiv:1612.02295)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 51.3",
    defaults={
        "head": {"name": "l-softmax", "margin": 4},
        "stages": {
            "representation": REPRESENTATION | {"annealing": ANNEALING},
            "classifier": CLASSIFIER,
        },
    },
)

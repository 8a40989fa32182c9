"""Softmax equalization loss."""

from wcdas.methods.base import REPRESENTATION, Method

EQUALIZATION = Method(
    summary="rare classes are spared the gradients of other classes' images, one stage",
    paper="Tan et al., 2020 (arXiv:2003.05176)",
    defaults={
        "head": {"name": "linear"},
        "stages": {"representation": REPRESENTATION | {"loss": "equalization"}},
    },
)

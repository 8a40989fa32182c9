"""WCDAS with the class prior in the loss."""

from wcdas.methods.base import REPRESENTATION, Method

WCDAS_PRIOR = Method(
    summary="wrapped Cauchy head with the class prior in the loss, one stage, mixup",
    paper="this project; the prior as in Menon et al., 2020",
    defaults={
        "head": {"name": "wcdas"},
        "stages": {
            "representation": REPRESENTATION
            | {"prior": 1.0, "concentration_weight_decay": 0.0, "mixup": 0.4, "nesterov": True}
        },
    },
)

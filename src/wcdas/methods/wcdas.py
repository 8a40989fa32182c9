"""The two headline rows of the paper."""

from wcdas.methods.base import CLASSIFIER, REPRESENTATION, Method

WCDAS = Method(
    summary="wrapped Cauchy head, two stages, the second class-balanced",
    paper="Han, 2023 (ICML)",
    defaults={
        "head": {"name": "wcdas"},
        "stages": {"representation": REPRESENTATION, "classifier": CLASSIFIER},
    },
)

WCDAS_META = Method(
    summary="wrapped Cauchy head, two stages, the second with the learned sampler of BALMS",
    paper="Han, 2023 (ICML); Ren et al., 2020",
    defaults={
        "head": {"name": "wcdas"},
        "stages": {
            "representation": REPRESENTATION,
            "classifier": CLASSIFIER | {"sampler": "meta", "sampler_options": {"lr": 0.01}},
        },
    },
)

"""Under which prior a stage's logits are trained."""

import pytest

from wcdas.run.spec import build


@pytest.mark.parametrize(
    ("stage", "prior"),
    [
        ({}, "train"),
        ({"mixup": 0.4, "label_smoothing": 0.1}, "train"),
        ({"prior": 1.0}, "uniform"),
        ({"prior": 0.5}, "none"),
        ({"loss": "balanced-softmax"}, "uniform"),
        ({"loss": "logit-adjustment"}, "uniform"),
        ({"loss": "logit-adjustment", "loss_options": {"tau": 1.0}}, "uniform"),
        ({"loss": "logit-adjustment", "loss_options": {"tau": 0.0}}, "train"),
        ({"loss": "logit-adjustment", "loss_options": {"tau": 2.0}}, "none"),
        ({"loss": "focal"}, "none"),
        ({"loss": "ldam"}, "none"),
        ({"loss": "class-balanced"}, "none"),
        ({"sampler": "class-balanced"}, "uniform"),
        ({"sampler": "class-aware"}, "uniform"),
        ({"sampler": "class-balanced", "prior": 1.0}, "none"),
        ({"sampler": "class-balanced", "loss": "balanced-softmax"}, "none"),
        ({"sampler": "square-root"}, "none"),
        ({"sampler": "progressively-balanced"}, "none"),
        ({"sampler": "meta"}, "none"),
    ],
)
def test_trained_prior(stage, prior):
    table = {"method": "softmax", "head": {"name": "linear"}, "data": {}}
    assert build(table | {"stages": {"one": stage}}).prior == prior

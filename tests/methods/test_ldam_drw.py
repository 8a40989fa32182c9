"""LDAM: margins by count; deferred re-weighting: the same optimizer and schedule go on."""

import json
from itertools import pairwise

import numpy as np
import pytest

from wcdas.data import open_dataset
from wcdas.errors import InputError
from wcdas.losses import LDAMLoss
from wcdas.methods import find_method
from wcdas.run.recipes import parse_settings
from wcdas.run.schedule import planned
from wcdas.run.settings import resolve
from wcdas.run.spec import build


def test_margins_are_ordered_by_count():
    options = find_method("ldam-drw").defaults["stages"]["representation"]["loss_options"]
    counts = open_dataset("digits-lt").class_counts
    margins = LDAMLoss(counts, **options).margins
    order = counts.argsort(stable=True)
    assert (margins[order].diff() <= 0).all()
    assert float(margins.max()) == pytest.approx(0.5)
    np.testing.assert_allclose(margins / margins[0], (counts[0] / counts) ** 0.25, rtol=1e-6)


def test_the_last_fifth_is_reweighted_under_one_schedule(on_pixels):
    run = on_pixels("ldam-drw", **{"stages.representation.epochs": 10})
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["representation"] * 8 + ["reweighting"] * 2
    # One cosine over ten epochs; what is logged is the rate of an epoch's last step.
    rates = [line["lr"] for line in lines]
    assert all(later < earlier for earlier, later in pairwise(rates))
    whole = on_pixels("softmax", **{"stages.representation.epochs": 10})
    same = [json.loads(line)["lr"] for line in (whole.path / "log.jsonl").read_text().splitlines()]
    assert rates == pytest.approx(same)


def test_shares_of_short_runs():
    def lengths(epochs):
        stages = {
            "first": {"epochs": epochs},
            "second": {"optimizer": "continue", "share": 0.2, "epochs": 7},
        }
        config = build({"method": "m", "data": {}, "head": {"name": "linear"}, "stages": stages})
        return [stage.epochs for _, stage in planned(config.stages)]

    assert lengths(200) == [160, 40]
    assert lengths(2) == [1, 1]
    with pytest.raises(InputError, match=r"first.epochs is 1, but stage second takes a share"):
        lengths(1)


@pytest.mark.parametrize("name", ["ldam-drw", "ride", "ride-wcdas"])
def test_one_epoch_cannot_be_shared(name):
    with pytest.raises(InputError, match=r"stages.representation.epochs is 1, but stage rewei"):
        resolve(name, "digits-lt", [parse_settings(["epochs=1"])], {}, None)
    assert resolve(name, "digits-lt", [parse_settings(["epochs=2"])], {}, None)

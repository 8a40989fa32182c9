"""Mean and sample standard deviation over seeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wcdas.sweeps import mean_and_std
from wcdas.sweeps.plan import Plan, SweepRun
from wcdas.sweeps.summary import METRICS, summarise


@given(st.lists(st.floats(0, 1), min_size=2, max_size=10))
def test_as_numpy_has_it(values):
    mean, std = mean_and_std(values)
    assert mean == pytest.approx(np.mean(values), abs=1e-12)
    assert std == pytest.approx(np.std(values, ddof=1), abs=1e-12)


def test_one_value_has_no_spread():
    assert mean_and_std([0.3]) == (0.3, None)


def metrics(value, **others):
    numbers = dict.fromkeys(METRICS, value)
    return numbers | {"headline": "top1", "test_images": 10, "never_predicted": 0} | others


def test_every_method_over_its_finished_runs():
    plan = Plan(("softmax", "wcdas"), 3, {"source": "x"}, {}, {}, False)
    found = {
        SweepRun("softmax", 0): metrics(0.5, medium=None),
        SweepRun("softmax", 2): metrics(0.7, medium=None),
    }
    results = summarise(plan, "x", found, {SweepRun("wcdas", 1): "too hot"}, {})
    softmax = results["methods"]["softmax"]
    assert softmax["finished"] == 2
    assert softmax["few"]["mean"] == pytest.approx(0.6)
    assert softmax["few"]["std"] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    assert softmax["medium"] == {"mean": None, "std": None}
    assert results["methods"]["wcdas"]["top1"] == {"mean": None, "std": None}
    states = {name: run["state"] for name, run in results["runs"].items()}
    assert states == {
        "softmax-s0": "finished",
        "wcdas-s0": "unfinished",
        "softmax-s1": "unfinished",
        "wcdas-s1": "failed",
        "softmax-s2": "finished",
        "wcdas-s2": "unfinished",
    }
    assert results["runs"]["wcdas-s1"]["reason"] == "too hot"

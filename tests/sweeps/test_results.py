"""Mean and spread over seeds, and the same numbers as text, Markdown and CSV."""

import csv
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wcdas.evaluation import evaluate
from wcdas.sweeps import mean_and_std
from wcdas.sweeps.plan import Plan, SweepRun
from wcdas.sweeps.results import METRICS, as_csv, as_markdown, as_text, summarise


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


RIGHT = torch.tensor([0, 0, 1, 1, 2, 2])


def measured(*predicted, labels=RIGHT):
    """Classes of 200, 150 and 3 training images: many and few, no medium."""
    return evaluate(torch.eye(3)[list(predicted)], labels, [200, 150, 3])


def results(seeds=2, failures=None, warnings=None, **runs):
    found = {SweepRun(*name.rsplit("_", 1)): m for name, m in runs.items()}
    found = {SweepRun(run.method, int(run.seed)): m for run, m in found.items()}
    plan = Plan(("softmax", "wcdas"), seeds, {"source": "x"}, {}, {}, False)
    return summarise(plan, "x", found, failures or {}, warnings or {})


# Of softmax: many 1 and 0.75, few 0 and 0.5; all 4/6 both times.
FOUND = {
    "softmax_0": measured(0, 0, 1, 1, 0, 0),
    "softmax_1": measured(0, 0, 1, 0, 2, 0),
    "wcdas_0": measured(0, 0, 1, 1, 2, 2),
}
FAILED = {SweepRun("wcdas", 1): "the loss became NaN"}


def test_text():
    assert as_text(results(failures=FAILED, **FOUND)).splitlines() == [
        "x: accuracy in % by training images, last epoch; mean ± std over seeds",
        "method    seeds  many (> 100)  medium (20–100)   few (< 20)         all",
        "softmax       2   87.5 ± 17.7                –  25.0 ± 35.4  66.7 ± 0.0",
        "wcdas    1 of 2         100.0                –        100.0       100.0",
        "wcdas-s1 failed: the loss became NaN",
    ]


def test_runs_with_a_warning_are_named():
    warned = results(warnings={SweepRun("softmax", 1): ["nothing is learnt"]}, **FOUND)
    assert as_text(warned).splitlines()[-1] == "softmax-s1, warning: nothing is learnt"
    assert as_markdown(warned).splitlines()[-1] == "- softmax-s1, warning: nothing is learnt"


def test_one_seed_has_no_spread():
    lines = as_text(results(seeds=1, **FOUND)).splitlines()
    assert lines[0] == "x: accuracy in % by training images, last epoch"
    assert lines[2].split() == ["softmax", "1", "100.0", "–", "0.0", "66.7"]
    assert "±" not in "".join(lines)


def test_markdown():
    assert as_markdown(results(failures=FAILED, **FOUND)).splitlines() == [
        "x: accuracy in % by training images, last epoch; mean ± std over seeds",
        "",
        "| method | seeds | many (> 100) | medium (20–100) | few (< 20) | all |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| `softmax` | 2 | 87.5 ± 17.7 | – | 25.0 ± 35.4 | 66.7 ± 0.0 |",
        "| `wcdas` | 1 of 2 | 100.0 | – | 100.0 | 100.0 |",
        "",
        "- wcdas-s1 failed: the loss became NaN",
    ]


def test_csv():
    softmax, wcdas = csv.DictReader(io.StringIO(as_csv(results(failures=FAILED, **FOUND))))
    assert (softmax["method"], softmax["seeds"], softmax["finished"]) == ("softmax", "2", "2")
    assert float(softmax["many_mean"]) == 87.5
    assert abs(float(softmax["many_std"]) - 100 * 0.25 / 2**0.5) < 1e-3
    assert (softmax["medium_mean"], softmax["medium_std"]) == ("", "")
    assert (softmax["failed"], wcdas["failed"]) == ("", "wcdas-s1 failed: the loss became NaN")
    assert (wcdas["finished"], wcdas["all_mean"], wcdas["all_std"]) == ("1", "100.0000", "")


def test_an_imbalanced_test_set_shows_balanced_accuracy():
    labels = torch.tensor([0, 0, 0, 0, 1, 2])
    table = as_text(results(seeds=1, softmax_0=measured(0, 0, 0, 0, 0, 0, labels=labels)))
    header, softmax, wcdas = table.splitlines()[1:]
    assert header.endswith("  all (balanced)")
    assert softmax.split()[-1] == "33.3"  # of top-1 it would be 66.7
    assert wcdas.split() == ["wcdas", "0", "of", "1", "–", "–", "–", "–"]


def compared(**answers):
    """Three methods on six images; an answer is what each image is taken for."""
    plan = Plan(("softmax", "wcdas", "crt"), 2, {"source": "x"}, {}, {}, False)
    runs = {SweepRun(*name.rsplit("_", 1)): torch.tensor(p) for name, p in answers.items()}
    runs = {SweepRun(run.method, int(run.seed)): p for run, p in runs.items()}
    found = {run: measured(*p.tolist()) for run, p in runs.items()}
    return summarise(plan, "x", found, {}, {}, {run: (RIGHT, p) for run, p in runs.items()})


def test_each_method_is_compared_with_the_best_on_the_seeds_that_both_have():
    results = compared(
        softmax_0=[0, 0, 0, 0, 0, 0],
        softmax_1=[0, 0, 0, 0, 0, 0],
        wcdas_0=[0, 0, 1, 1, 2, 2],
        wcdas_1=[0, 0, 1, 1, 2, 2],
        crt_1=[0, 0, 1, 1, 2, 0],
    )
    assert results["best"] == "wcdas"
    softmax, best, crt = (results["methods"][m]["to_best"] for m in ("softmax", "wcdas", "crt"))
    assert best is None
    assert softmax == {"mean": pytest.approx(-2 / 3), "margin": 0}
    assert crt["mean"] == pytest.approx(-1 / 6)
    assert crt["margin"] > 1 / 6
    text = as_text(results)
    assert [line.split("  ")[-1].strip() for line in text.splitlines()[1:5]] == [
        "to the best",
        "−66.7 ± 0.0",
        "best",
        "−16.7 ± 32.7",
    ]
    told = "not told apart from wcdas by these seeds and test images (95 %): crt"
    assert text.splitlines()[-1] == told
    assert f"- {told}" in as_markdown(results)
    rows = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert [row["to_best_mean"] for row in rows] == ["-66.6667", "", "-16.6667"]


def test_runs_without_answers_and_on_other_images_are_not_compared():
    results = compared(softmax_0=[0, 0, 0, 0, 0, 0], crt_1=[0, 0, 1, 1, 2, 0])
    assert results["methods"]["softmax"]["to_best"] is None
    assert "best" not in as_text(results)
    plan = Plan(("softmax", "wcdas"), 1, {"source": "x"}, {}, {}, False)
    found = {SweepRun(m, 0): measured(*RIGHT.tolist()) for m in ("softmax", "wcdas")}
    answers = {SweepRun("softmax", 0): (RIGHT, RIGHT), SweepRun("wcdas", 0): (RIGHT[:3], RIGHT[:3])}
    results = summarise(plan, "x", found, {}, {}, answers)
    assert results["methods"]["wcdas"]["to_best"] is None

"""Lines of results: read, chosen, and summed up."""

import json

import pytest

from wcdas.errors import InputError
from wcdas.sweeps.results import METRICS, as_markdown
from wcdas.sweeps.results_file import by_protocol, read_results, select, summary


def line(method="softmax", seed=0, value=0.5, **others):
    metrics = dict.fromkeys(METRICS, value)
    return {
        "dataset": "x",
        "imbalance": 100.0,
        "settings": {},
        "method": method,
        "seed": seed,
        "metrics": metrics | {"headline": "top1", "test_images": 10, "never_predicted": 0},
        "seconds": 1.5,
        "device": None,
        "threads": None,
        "code": {},
        "versions": {"wcdas": "0.1.0"},
        "fingerprint": "f",
    } | others


def written(folder, *lines):
    (folder / "x.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return folder


def test_lines_are_read_as_they_were_written(tmp_path):
    lines = [line(), line(seed=1, to_best={"best": "wcdas", "mean": -0.1, "margin": 0.2})]
    assert read_results(written(tmp_path, *lines)) == lines


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        ({"seed": "0"}, "line 2, is damaged: line 2.seed is '0'; expected a whole number"),
        ({"metrics": {"many": 0.5}}, "metrics has no"),
        ({"imbalance": [1]}, "imbalance is [1]; expected a number"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, damaged, told):
    with pytest.raises(InputError) as caught:
        read_results(written(tmp_path, line(), line(**damaged)))
    assert told in str(caught.value)
    assert "delete the line, and add its run again" in str(caught.value)


def test_a_torn_line_is_named(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"dataset": "x"')
    with pytest.raises(InputError, match=r"x\.jsonl, line 1, is damaged"):
        read_results(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no results; expected"):
        read_results(tmp_path)


def test_protocols_are_told_apart():
    lines = [
        line(seed=1),
        line(settings={"epochs": 2}),
        line(imbalance=10.0),
        line(fingerprint="g"),
        line(),
    ]
    found = by_protocol(lines)
    assert sorted(map(len, found.values())) == [1, 1, 1, 2]
    assert [one["seed"] for one in max(found.values(), key=len)] == [0, 1]


def test_what_is_asked_for_is_one_protocol():
    lines = [line(), line(imbalance=10.0), line(settings={"epochs": 2, "b": 1})]
    assert select(lines, "x", 10, {}) == [lines[1]]
    assert select(lines, "x", None, {"b": 1, "epochs": 2}) == [lines[2]]
    assert select(lines, "x", None, {"epochs": 2}) == select(lines, "y", None, {}) == []
    with pytest.raises(InputError, match="imbalance 10 of data f, imbalance 100 of data f"):
        select(lines, "x", None, {})


def test_other_data_under_the_same_name_are_not_mixed():
    with pytest.raises(InputError, match=r"of data f, .* of data g"):
        select([line(), line(seed=1, fingerprint="g")], "x", 100, {})


TO_BEST = {"best": "wcdas", "mean": -0.2, "margin": 0.1}


def compared(**others):
    return summary(
        [
            line(seed=0, value=0.5, to_best=TO_BEST),
            line(seed=4, value=0.6, to_best=TO_BEST),
            line("wcdas", seed=0, value=0.7),
            line("wcdas", seed=4, value=0.8) | others,
        ]
    )


def test_margins_of_the_sweep_are_shown():
    results = compared()
    assert results["seeds"] == 2
    assert results["methods"]["softmax"]["to_best"] == {"mean": -0.2, "margin": 0.1}
    assert "| `softmax` | 2 | 55.0 ± 7.1 |" in as_markdown(results)
    assert "| −20.0 ± 10.0 |" in as_markdown(results)


def test_a_margin_goes_where_its_runs_have_changed():
    assert compared(**line("wcdas", seed=4, value=0.75))["methods"]["softmax"]["to_best"] is None
    assert compared(**line("crt", seed=4, value=0.9))["methods"]["softmax"]["to_best"] is None


def test_a_missing_seed_is_seen():
    results = summary([line(seed=0), line(seed=1), line("own", seed=1)])
    assert "| `own` | 1 of 2 |" in as_markdown(results)

"""From finished runs to lines of files: what is kept, replaced and left out."""

import json
import shutil
from pathlib import Path

import pytest

import wcdas
from wcdas.run.origin import commit, source
from wcdas.sweeps import keep, keep_results, read_results
from wcdas.sweeps.results_file import by_protocol, select, summary

SETTINGS = {"epochs": 1, "backbone.name": "resnet8"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> wcdas.Sweep:
    """Two methods × two seeds on the digits, one epoch a stage."""
    return wcdas.sweep(
        "digits-lt",
        ["softmax", "wcdas"],
        2,
        settings=SETTINGS,
        out=tmp_path_factory.mktemp("sweeps") / "digits",
        device="cpu",
        report=False,
    )


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished.path, tmp_path / "digits"))


def test_a_line_says_what_a_run_is_and_what_came_out(finished, tmp_path):
    done = keep_results([finished.path], tmp_path / "results")
    file = tmp_path / "results" / "digits-lt.jsonl"
    assert (done.files, done.left_out) == ([f"{file}: 4 lines, 4 new, 0 replaced"], [])
    lines = read_results(tmp_path / "results")
    assert [(line["method"], line["seed"]) for line in lines] == [
        ("softmax", 0), ("softmax", 1), ("wcdas", 0), ("wcdas", 1),
    ]  # fmt: skip
    for line in lines:
        run = wcdas.Run(finished.path / f"{line['method']}-s{line['seed']}")
        for key, value in line["metrics"].items():
            assert value == (run.metrics[key] if isinstance(value, str) else pytest.approx(
                run.metrics[key], abs=1e-6))  # fmt: skip
        logged = [json.loads(text) for text in (run.path / "log.jsonl").read_text().splitlines()]
        assert line["seconds"] == pytest.approx(sum(e["seconds"] for e in logged), abs=0.06)
        assert (line["dataset"], line["imbalance"]) == ("digits-lt", 50.0)
        assert line["settings"] == SETTINGS
        assert line["device"] == "cpu"
        assert line["code"]["source"] == source()
        assert line["versions"]["wcdas"] == wcdas.__version__


def test_what_is_kept_gives_the_table_of_the_sweep(finished, tmp_path):
    keep_results([finished.path], tmp_path)
    (lines,) = by_protocol(read_results(tmp_path)).values()
    ours, theirs = summary(lines), finished.results
    assert (ours["best"], ours["headline"]) == (theirs["best"], theirs["headline"])
    for method, of in theirs["methods"].items():
        for key, value in of.items():
            found = ours["methods"][method][key]
            if isinstance(value, dict):
                assert found == {k: v and pytest.approx(v, abs=1e-5) for k, v in value.items()}
            else:
                assert found == value


def test_an_equal_run_takes_the_place_of_a_line(copy, tmp_path):
    to = tmp_path / "results"
    keep_results([copy], to)
    before = (to / "digits-lt.jsonl").read_text()
    done = keep_results([copy], to)
    assert done.files[0].endswith("4 lines, 0 new, 4 replaced")
    assert (to / "digits-lt.jsonl").read_text() == before
    file = copy / "wcdas-s0" / "metrics.json"
    metrics = json.loads(file.read_text())
    file.write_text(json.dumps(metrics | {"nll": 1.25}))
    done = keep_results([copy / "wcdas-s0"], to)
    assert done.files[0].endswith("4 lines, 0 new, 1 replaced")
    changed = (to / "digits-lt.jsonl").read_text().splitlines()
    same = [a == b for a, b in zip(changed, before.splitlines(), strict=True)]
    assert same == [True, True, False, True]
    assert json.loads(changed[2])["metrics"]["nll"] == 1.25


def test_the_order_of_lines_is_not_that_of_adding(finished, tmp_path):
    runs = [finished.path / name for name in ("wcdas-s1", "softmax-s1", "wcdas-s0", "softmax-s0")]
    for run in runs:
        keep_results([run], tmp_path / "one")
    keep_results(runs[::-1], tmp_path / "other")
    one, other = ((tmp_path / to / "digits-lt.jsonl").read_text() for to in ("one", "other"))
    assert one == other


def test_runs_of_other_settings_stay_beside_each_other(finished, copy, tmp_path):
    for name in ("softmax-s0", "wcdas-s1"):
        file = copy / name / "run.toml"
        file.write_text(file.read_text().replace('name = "resnet8"', 'name = "resnet20"'))
    to = tmp_path / "results"
    keep_results([finished.path, copy], to)
    assert sorted(map(len, by_protocol(read_results(to)).values())) == [2, 4]
    assert len(select(read_results(to), "digits-lt", None, SETTINGS)) == 4


def test_what_is_unfinished_or_damaged_is_left_out_with_its_reason(copy, tmp_path):
    (copy / "softmax-s0" / "metrics.json").unlink()
    (copy / "wcdas-s0" / "metrics.json").write_text("{")
    shutil.rmtree(copy / "wcdas-s1")
    done = keep_results([copy], tmp_path / "results")
    assert done.files[0].endswith("1 line, 1 new, 0 replaced")
    unfinished, damaged, missing = sorted(done.left_out)
    assert "softmax-s0 is not finished; go on with: wcdas train --out" in unfinished
    assert "metrics.json is damaged" in damaged
    assert "wcdas-s1 holds no run" in missing


def test_command(command, copy):
    assert command("results", copy) == (
        0, "results/digits-lt.jsonl: 4 lines, 4 new, 0 replaced\n", "",
    )  # fmt: skip
    (copy / "wcdas-s0" / "metrics.json").unlink()
    status, out, err = command("results", copy)
    assert (status, err) == (1, "wcdas: 1 of 4 runs are left out\n")
    assert "0 new, 3 replaced\nleft out: " in out
    assert len(read_results(Path("results"))) == 4  # what was there stays


def test_what_is_no_run_is_refused(refused, tmp_path):
    assert "holds no run and no sweep; expected" in refused("results", tmp_path)
    assert "does not exist" in refused("results", tmp_path / "other.jsonl")


def test_lines_of_another_machine(finished, tmp_path, monkeypatch):
    """A run outside any checkout has no commit; equal code in a checkout can name it."""
    keep_results([finished.path], tmp_path / "there")
    file = tmp_path / "there" / "digits-lt.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line, code in zip(lines, (source(), source(), "other code", ""), strict=True):
        line["code"] = {"source": code} if code else {}
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setattr(keep, "commit", lambda: "0123456789ab")
    keep_results([file], tmp_path / "here")
    found = [line["code"].get("commit") for line in read_results(tmp_path / "here")]
    assert found == ["0123456789ab", "0123456789ab", None, None]
    assert commit() != "0123456789ab"


def test_two_at_a_time_do_not_write(finished, tmp_path):
    with keep.locked(tmp_path, ""), pytest.raises(wcdas.InputError, match="is in use"):
        keep_results([finished.path], tmp_path)

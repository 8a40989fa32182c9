"""Whether ρ knows the label: from real runs, from synthetic ρ, and by numbers alone."""

import json
import math
import shutil
import tomllib
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import tomli_w
from matplotlib.figure import Figure

import wcdas
from wcdas import InputError
from wcdas.paper import CLAIMS, Setting, Verdict, awareness
from wcdas.paper.awareness import NEEDED, STARTS, _paint, by_start, judged, protocols, told
from wcdas.paper.concentrations import AS_IN_THE_PAPER, CLASSIFIER, REPRESENTATION
from wcdas.paper.ended import (
    Correlation,
    Ended,
    correlation,
    find_runs,
    read_ended,
    rho_by_stage,
    trains_as_the_paper,
)
from wcdas.paper.printed import recipe_of_the_paper
from wcdas.paper.run import run_paper
from wcdas.run import RunFolder
from wcdas.run.spec import as_table

TAIL, HEAD, UNCLEAR = Correlation(-0.9, 0.001), Correlation(0.8, 0.001), Correlation(-0.3, 0.4)


def train(out: Path, **settings: object) -> Path:
    """A run of a few epochs on the digits."""
    table = {"backbone.name": "resnet8", "epochs": 1, "evaluate_every": 1000} | settings
    wcdas.train(
        "digits-lt", "wcdas", settings=table, out=out, device="cpu", workers=0, callbacks=(),
        report=False,
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "run", **{"head.scale_init": 30.0})


def with_rho(run: Path, out: Path, rho: list[float], start: float) -> Path:
    """The run as if it had ended with other concentrations, from another start of s."""
    shutil.copytree(run, out)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    for line in lines:
        line["rho_by_class"] = rho
    (out / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    table = tomllib.loads((out / "run.toml").read_text("utf-8"))
    table["head"]["scale_init"] = start
    (out / "run.toml").write_text(tomli_w.dumps(table), "utf-8")
    return out


def ended(start: float, of: Correlation, decides: bool = True) -> Ended:
    return Ended("data", start, {REPRESENTATION: of}, decides)


def test_a_run_tells_what_its_model_has(run: Path) -> None:
    found = read_ended(run)
    rho = wcdas.load(run).classifier.head.concentration.detach().numpy()
    counts = np.array(RunFolder(run).read_run()["info"]["class_counts"])
    ranks = [np.argsort(np.argsort(values)) for values in (rho, -counts)]  # no two are alike
    assert len(set(counts)) == len(counts)
    assert found.stages[CLASSIFIER].value == pytest.approx(-np.corrcoef(*ranks)[0, 1])
    assert list(found.stages) == [REPRESENTATION, CLASSIFIER]
    assert found.start == 30
    assert found.what == "digits-lt, imbalance 50, resnet8, 1 epoch"
    assert not found.decides


def test_where_s_starts(run: Path, tmp_path: Path) -> None:
    """softplus(0) + 1 in the paper; else √(d/3)/f′ for d = 64, where ρ = σ(−1)."""
    table = tomllib.loads((run / "run.toml").read_text("utf-8"))
    rho = 1 / (1 + math.e)
    slope = rho * (1 - rho**2) / (math.pi * (1 + rho**2) ** 2)
    starts = {"paper": math.log(2) + 1, "auto": math.sqrt(64 / 3) / slope}
    for start, expected in starts.items():
        out = shutil.copytree(run, tmp_path / start)
        other = table | {"head": {"name": "wcdas", "start": start}}
        (out / "run.toml").write_text(tomli_w.dumps(other), "utf-8")
        assert read_ended(out).start == pytest.approx(expected, rel=5e-3)


def test_synthetic_concentrations(run: Path, tmp_path: Path) -> None:
    counts = RunFolder(run).read_run()["info"]["class_counts"]
    known = [0.9 - 0.001 * count for count in counts]
    turned = [0.1 + 0.001 * count for count in counts]
    with_rho(run, tmp_path / "runs" / "a", turned, 2.0)
    with_rho(run, tmp_path / "runs" / "b", known, 100.0)
    with_rho(run, tmp_path / "runs" / "c", known, 100.0)
    done = run_paper(["label-awareness"], out=tmp_path / "out", runs=[tmp_path / "runs"])
    finding = done.results["label-awareness"].finding
    assert finding.verdict == Verdict.NEEDS_DATA  # digits decide nothing
    assert finding.sentence.endswith(NEEDED)
    assert "head has the larger ρ where s starts at 2; the tail" in finding.sentence
    assert "tail has the larger ρ where s starts at 100" in finding.sentence
    assert "digits-lt, imbalance 50, resnet8, 1 epoch: the head" in finding.sentence
    assert "Of 3 runs none decide" in finding.sentence
    assert [round(value, 6) for value in finding.numbers.values()] == [1.0, -1.0]
    assert [row[1:] for row in finding.tables[0].rows] == [
        ("2", "+1.00", "+1.00"),
        ("100", "-1.00, -1.00", "-1.00, -1.00"),
    ]


@pytest.mark.slow
def test_real_runs_from_three_starts(setting: Setting, tmp_path: Path) -> None:
    for start in (2.0, 10.0, 100.0):
        settings = {"head.scale_init": start, "epochs": 3}
        train(tmp_path / "runs" / f"s{start:g}", **settings)
    runs = find_runs([tmp_path / "runs"])
    finding = CLAIMS["label-awareness"].check(Setting(setting.out, device="cpu", runs=runs))
    assert finding.verdict == Verdict.NEEDS_DATA
    (table,) = finding.tables
    assert [row[1] for row in table.rows] == ["2", "10", "100"]
    counts = RunFolder(runs[0]).read_run()["info"]["class_counts"]
    for path in runs:
        rho = rho_by_stage(path)[REPRESENTATION]
        start = read_ended(path).start
        expected = correlation(rho, counts).value
        (value,) = (v for name, v in finding.numbers.items() if name.endswith(f"from {start:g}"))
        assert value == pytest.approx(expected)
    assert len({tuple(rho_by_stage(path)[REPRESENTATION]) for path in runs}) == 3
    assert finding.figures[0].with_suffix(".png").exists()


@pytest.mark.slow
def test_without_runs_the_digits_stand_in(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awareness, "STARTS", [30.0])
    monkeypatch.setattr(awareness, "CONDITIONS", {AS_IN_THE_PAPER: {}, "w_ρ": {"head.init": 2.0}})
    monkeypatch.setattr(awareness, "runs_for", shorter(awareness.runs_for))
    finding = CLAIMS["label-awareness"].check(setting)
    assert finding.verdict == Verdict.NEEDS_DATA
    rows = [row[:2] for row in finding.tables[0].rows]
    assert rows == [(AS_IN_THE_PAPER, "1.69"), ("", "30"), ("w_ρ", "1.69")]


def shorter(runs_for):
    """The same with one epoch."""

    def run(setting, claim, variants):
        one = {"stages.representation.epochs": 1, "stages.classifier.epochs": 1}
        return runs_for(setting, claim, [{**settings, **one} for settings in variants])

    return run


def test_correlation_is_that_of_the_ranks() -> None:
    rho, counts = np.array([0.3, 0.9, 0.5, 0.7, 0.6]), np.array([50, 1, 20, 10, 10])
    ranks = [np.array([1, 5, 2, 4, 3]), np.array([5, 1, 4, 2.5, 2.5])]  # ties share theirs
    assert correlation(rho, counts).value == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert correlation(rho, -counts).value == -correlation(rho, counts).value
    assert (str(TAIL), str(UNCLEAR)) == ("-0.90", "(-0.30)")


def test_verdict_follows_the_runs() -> None:
    assert judged([ended(2, TAIL), ended(100, TAIL)]) == Verdict.HOLDS
    assert judged([ended(2, HEAD), ended(100, TAIL)]) == Verdict.CORRECTED
    assert judged([ended(2, UNCLEAR), ended(100, TAIL)]) == Verdict.CORRECTED
    assert judged([ended(2, HEAD), ended(100, HEAD)]) == Verdict.REFUTED
    assert judged([ended(2, HEAD), ended(100, UNCLEAR)]) == Verdict.REFUTED
    assert judged([ended(2, UNCLEAR), ended(100, UNCLEAR)]) == Verdict.NEEDS_DATA
    assert judged([ended(2, HEAD), ended(2, HEAD)]) == Verdict.NEEDS_DATA  # one start
    assert judged([ended(2, HEAD, False), ended(100, TAIL, False)]) == Verdict.NEEDS_DATA
    # Runs from one start that do not agree say nothing of it.
    assert judged([ended(2, HEAD), ended(100, TAIL), ended(100, HEAD)]) == Verdict.REFUTED


def test_what_is_told_follows_the_runs() -> None:
    assert told([ended(100, TAIL), ended(2, HEAD), ended(10, HEAD)]) == (
        "the head has the larger ρ where s starts at 2, 10; "
        "the tail has the larger ρ where s starts at 100"
    )
    assert told([ended(2, UNCLEAR)]) == "it is not clear where s starts at 2"


def test_finding_of_runs_that_decide(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"data": [ended(1.69, HEAD), ended(100, TAIL)]}
    monkeypatch.setattr(awareness, "groups_for", lambda setting: groups)
    finding = CLAIMS["label-awareness"].check(setting)
    assert finding.verdict == Verdict.CORRECTED
    assert finding.sentence.endswith("Of 2 runs 2 decide.")
    monkeypatch.setattr(awareness, "groups_for", lambda setting: {})
    finding = CLAIMS["label-awareness"].check(setting)
    assert finding.verdict == Verdict.NEEDS_DATA
    assert "wcdas paper label-awareness --mode real --out DIR" in finding.sentence


def test_figure_has_a_dot_for_each_run_and_a_line_of_means() -> None:
    runs = [ended(100, TAIL), ended(2, HEAD), ended(100, UNCLEAR)]
    figure = Figure()
    _paint(figure, [runs])
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    *dots, line = axes.lines[1:]  # the first is at zero
    assert sorted((float(dot.get_xdata()[0]), float(dot.get_ydata()[0])) for dot in dots) == [
        (2, 0.8), (100, -0.9), (100, -0.3)
    ]  # fmt: skip
    assert list(line.get_xdata()) == [2, 100]
    assert list(line.get_ydata()) == pytest.approx([0.8, fmean([-0.9, -0.3])])
    hollow = [dot for dot in dots if dot.get_markerfacecolor() == "white"]
    assert [float(dot.get_ydata()[0]) for dot in hollow] == [-0.3]


@pytest.mark.parametrize("data", ["cifar100-lt", "cifar10-lt", "imagenet-lt", "inat2018"])
def test_a_run_decides_where_it_trains_as_the_paper_but_for_s(data: str) -> None:
    def decides(**others: object) -> bool:
        table = as_table(recipe_of_the_paper(data))
        table["data"]["source"] = data
        for path, value in others.items():
            *above, key = path.split("__")
            place = table
            for name in above:
                place = place[name]
            place[key] = value
        return trains_as_the_paper(tomllib.loads(tomli_w.dumps(table)))

    assert decides()
    assert decides(head__scale_init=100.0)
    assert decides(seed=3)
    assert decides(stages__classifier__sampler="instance-balanced")  # it is judged before
    assert not decides(stages__representation__epochs=12)
    assert not decides(stages__representation__sampler="class-balanced")
    assert not decides(stages__representation__prior=1.0)
    assert not decides(head__start="auto")
    assert not decides(head__init=2.0)
    assert not decides(backbone__name="resnet8")
    assert not decides(data__source="digits-lt")
    assert not decides(data__source="pictures")


def test_by_start_is_in_order() -> None:
    assert list(by_start([ended(100, TAIL), ended(2, HEAD)])) == [2, 100]
    assert by_start([ended(2, HEAD)], CLASSIFIER) == {2: []}


def test_runs_that_cannot_tell_are_refused(run: Path, tmp_path: Path) -> None:
    unfinished = shutil.copytree(run, tmp_path / "unfinished" / "run")
    (unfinished / "metrics.json").unlink()
    one_for_all = with_rho(run, tmp_path / "one" / "run", [0.5] * 10, 2.0)
    linear = shutil.copytree(run, tmp_path / "linear" / "run")
    table = tomllib.loads((linear / "run.toml").read_text("utf-8"))
    (linear / "run.toml").write_text(tomli_w.dumps(table | {"head": {"name": "wndas"}}), "utf-8")
    for folder in (unfinished, one_for_all, linear, tmp_path / "nothing"):
        with pytest.raises(InputError, match="holds no finished run of wcdas with a ρ for every"):
            find_runs([folder])
    assert find_runs([run.parent, run]) == (run,)
    with pytest.raises(InputError, match="which label-awareness alone reads"):
        run_paper(["theorem-4"], out=tmp_path / "out", runs=[run])


def test_conditions_cover_what_is_asked() -> None:
    settings = [key for _, condition in protocols() for key in condition]
    for key in ("concentration_weight_decay", "sampler", "prior", "init", "scale_init"):
        assert any(setting.endswith(key) for setting in settings)
    own = [condition for name, condition in protocols() if name == AS_IN_THE_PAPER]
    assert own == [{}, *({"head.scale_init": start} for start in STARTS)]

"""Figures 4, 5 and 7: from real runs, and by numbers alone."""

import numpy as np
import pytest
import torch
from PIL import Image

import wcdas
from wcdas.paper import CLAIMS, Setting, Verdict, concentrations
from wcdas.paper.concentrations import (
    CLASSIFIER,
    REPRESENTATION,
    SHOWN_IN,
    Dataset,
    epochs,
    judged_4,
    judged_5,
    judged_7,
    runs_for,
    tail_is_larger,
)
from wcdas.paper.runs import STAND_IN
from wcdas.run import RunFolder

pytestmark = pytest.mark.slow

DIGITS = Dataset("digits-lt", STAND_IN, 100, epochs=3)


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return Setting(tmp_path_factory.mktemp("paper"), device="cpu")


@pytest.fixture(scope="module")
def runs(setting):
    with pytest.MonkeyPatch.context() as patch:
        only(patch, DIGITS)
        found, _ = runs_for(setting, "figure-4")
    ((runs,),) = found.values()
    return runs


def only(monkeypatch, dataset):
    for claim in SHOWN_IN:
        monkeypatch.setitem(SHOWN_IN, claim, [dataset])


def test_rho_of_a_run_is_that_of_its_model(runs):
    head = wcdas.load(runs[0]).classifier.head
    rho = head.concentration.detach()
    few = torch.tensor(RunFolder(runs[0]).read_run()["info"]["class_counts"]) < 20
    assert epochs(runs, CLASSIFIER)[-1]["few"] == pytest.approx(float(rho[few].mean()))
    assert len(epochs(runs, REPRESENTATION)) == 3
    assert list(epochs(runs, REPRESENTATION)[0]) == ["few", "medium", "many"]


@pytest.mark.usefixtures("runs")
def test_figures_are_drawn_and_digits_decide_nothing(setting, monkeypatch):
    only(monkeypatch, DIGITS)
    monkeypatch.setattr(concentrations, "STARTS", (0.0, 2.0))
    for name in ("figure-4", "figure-5", "figure-7"):
        finding = CLAIMS[name].check(setting)
        assert finding.verdict == Verdict.NEEDS_DATA
        assert "digits-lt" in finding.sentence
        (figure,) = finding.figures
        assert figure.read_text(encoding="utf-8").lstrip().startswith("<?xml")
        pixels = np.asarray(Image.open(figure.with_suffix(".png")).convert("L"))
        assert pixels.min() < 100 < pixels.max()
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert border.min() == 255  # nothing is cut at the edge


def test_nothing_trained_needs_data(tmp_path, monkeypatch):
    only(monkeypatch, Dataset("iNaturalist 2018", "inat2018"))
    real = Setting(tmp_path / "out", "real", data_root=tmp_path, device="cpu")
    for name in ("figure-4", "figure-5", "figure-7", "label-awareness"):
        finding = CLAIMS[name].check(real)
        assert finding.verdict == Verdict.NEEDS_DATA


def test_figure_4_follows_the_numbers():
    start, end = {"few": 0.5, "medium": 0.5, "many": 0.5}, {"few": 0.9, "medium": 0.8, "many": 0.7}
    nearer = {"few": 0.85, "medium": 0.8, "many": 0.78}
    assert judged_4([start, end], nearer)[0] == Verdict.HOLDS
    assert judged_4([end, end], nearer)[0] == Verdict.CORRECTED  # ρ does not grow
    assert judged_4([start, end], end)[0] == Verdict.CORRECTED  # nor do they approach
    reversed_end = {"few": 0.7, "medium": 0.8, "many": 0.9}
    assert judged_4([start, reversed_end], nearer)[0] == Verdict.REFUTED


def test_figure_5_follows_the_numbers():
    tail, head = {"few": 0.9, "many": 0.7}, {"medium": 0.7, "many": 0.9}
    assert judged_5([]) == Verdict.NEEDS_DATA
    assert judged_5([tail, tail]) == Verdict.HOLDS
    assert judged_5([tail, head]) == Verdict.CORRECTED
    assert judged_5([head]) == Verdict.REFUTED
    assert not tail_is_larger({"few": 0.9, "medium": 0.6, "many": 0.7})


def test_figure_7_follows_the_numbers():
    one, near = {"few": 0.9, "many": 0.7}, {"few": 0.87, "many": 0.71}
    assert judged_7([one, near])[0] == Verdict.HOLDS
    assert judged_7([one, {"few": 0.8, "many": 0.7}])[0] == Verdict.REFUTED
    flipped = {"few": 0.69, "many": 0.7}
    assert judged_7([flipped, flipped])[0] == Verdict.CORRECTED

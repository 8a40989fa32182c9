"""Figures 4, 5 and 7, and whether ρ knows the label: from real runs, and by numbers alone."""

import numpy as np
import pytest
import torch
from PIL import Image

import wcdas
from wcdas.paper import figure_4, figure_5, figure_7, label_awareness
from wcdas.paper.claim import Setting, Verdict
from wcdas.paper.concentrations import (
    CLASSIFIER,
    REPRESENTATION,
    Place,
    by_class,
    class_counts,
    epochs,
    tail_is_larger,
    trained,
)
from wcdas.paper.label_awareness import (
    AS_IN_THE_PAPER,
    CONDITIONS,
    Correlation,
    correlation,
    judged,
)
from wcdas.paper.tables.protocols import STAND_IN

pytestmark = pytest.mark.slow

PLACE = Place(STAND_IN, 100, epochs=3)
TWO = {name: CONDITIONS[name] for name in (AS_IN_THE_PAPER, "w_ρ starts at 2")}
TAIL, HEAD, UNCLEAR = Correlation(-0.9, 0.001), Correlation(0.9, 0.001), Correlation(-0.3, 0.4)


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return Setting(tmp_path_factory.mktemp("paper"), device="cpu")


@pytest.fixture(scope="module")
def runs(setting):
    ((runs,),) = trained(setting, [PLACE]).values()
    return runs


def test_rho_of_a_run_is_that_of_its_model(runs):
    head = wcdas.load(runs[0].path).classifier.head
    rho = head.concentration.detach()
    assert by_class(runs, CLASSIFIER) == pytest.approx(rho.numpy())
    few = torch.tensor(class_counts(runs[0])) < 20
    assert epochs(runs, CLASSIFIER)[-1]["few"] == pytest.approx(float(rho[few].mean()))
    assert len(epochs(runs, REPRESENTATION)) == 3
    assert list(epochs(runs, REPRESENTATION)[0]) == ["few", "medium", "many"]


def test_figures_are_drawn_and_digits_decide_nothing(setting, runs):
    for check, options in (
        (figure_4.check, {}),
        (figure_5.check, {}),
        (figure_7.check, {"starts": (0.0, 2.0)}),
    ):
        finding = check(setting, (PLACE,), **options)
        assert finding.verdict == Verdict.NEEDS_DATA
        assert "digits-lt" in finding.sentence
        (figure,) = finding.figures
        assert figure.read_text(encoding="utf-8").lstrip().startswith("<?xml")
        pixels = np.asarray(Image.open(figure.with_suffix(".png")).convert("L"))
        assert pixels.min() < 100 < pixels.max()
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert border.min() == 255  # nothing is cut at the edge


def test_nothing_trained_needs_data(tmp_path):
    real = Setting(tmp_path / "out", "real", data_root=tmp_path, device="cpu")
    for check in (figure_4.check, figure_5.check, figure_7.check, label_awareness.check):
        finding = check(real, (Place("inat2018", label="iNaturalist 2018"),))
        assert finding.verdict == Verdict.NEEDS_DATA


def test_figure_4_follows_the_numbers():
    start, end = {"few": 0.5, "medium": 0.5, "many": 0.5}, {"few": 0.9, "medium": 0.8, "many": 0.7}
    nearer = {"few": 0.85, "medium": 0.8, "many": 0.78}
    assert figure_4.judged([start, end], nearer)[0] == Verdict.HOLDS
    assert figure_4.judged([end, end], nearer)[0] == Verdict.CORRECTED  # ρ does not grow
    assert figure_4.judged([start, end], end)[0] == Verdict.CORRECTED  # nor do they approach
    reversed_end = {"few": 0.7, "medium": 0.8, "many": 0.9}
    assert figure_4.judged([start, reversed_end], nearer)[0] == Verdict.REFUTED


def test_figure_5_follows_the_numbers():
    tail, head = {"few": 0.9, "many": 0.7}, {"medium": 0.7, "many": 0.9}
    one, two = Place("cifar100-lt", 100), Place("cifar10-lt", 100)
    assert figure_5.judged({}) == Verdict.NEEDS_DATA
    assert figure_5.judged({one: tail, two: tail}) == Verdict.HOLDS
    assert figure_5.judged({one: tail, two: head}) == Verdict.CORRECTED
    assert figure_5.judged({one: head}) == Verdict.REFUTED
    assert not tail_is_larger({"few": 0.9, "medium": 0.6, "many": 0.7})


def test_figure_7_follows_the_numbers():
    one, near = {"few": 0.9, "many": 0.7}, {"few": 0.87, "many": 0.71}
    assert figure_7.judged({0.0: one, 1.0: near})[0] == Verdict.HOLDS
    assert figure_7.judged({0.0: one, 1.0: {"few": 0.8, "many": 0.7}})[0] == Verdict.REFUTED
    flipped = {"few": 0.69, "many": 0.7}
    assert figure_7.judged({0.0: flipped, 1.0: flipped})[0] == Verdict.CORRECTED


def test_rank_correlation_is_that_of_the_ranks():
    rho = np.array([0.3, 0.9, 0.5, 0.7, 0.6])
    counts = np.array([50, 1, 20, 10, 5])
    ranks = [values.argsort().argsort() for values in (rho, counts)]
    assert correlation(rho, counts).value == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert correlation(rho, -counts).value == -correlation(rho, counts).value


def test_label_awareness_follows_the_numbers():
    other = "w_ρ starts at 2"
    assert judged({AS_IN_THE_PAPER: TAIL, other: TAIL}) == Verdict.HOLDS
    assert judged({AS_IN_THE_PAPER: TAIL, other: UNCLEAR}) == Verdict.CORRECTED
    assert judged({AS_IN_THE_PAPER: TAIL, other: HEAD}) == Verdict.CORRECTED
    assert judged({AS_IN_THE_PAPER: HEAD, other: TAIL}) == Verdict.REFUTED
    assert judged({AS_IN_THE_PAPER: UNCLEAR, other: HEAD}) == Verdict.REFUTED
    assert judged({AS_IN_THE_PAPER: UNCLEAR, other: UNCLEAR}) == Verdict.NEEDS_DATA


def test_conclusion_is_in_the_words_of_the_numbers():
    told = label_awareness.conclusion({AS_IN_THE_PAPER: HEAD, "other": TAIL})
    assert told.startswith("ρ knows the label, but the other way round")
    assert "under 1 of 2 conditions: other -0.90" in told
    told = label_awareness.conclusion({AS_IN_THE_PAPER: TAIL, "other": HEAD})
    assert told.startswith("ρ knows the label as the paper says")
    assert label_awareness.conclusion({AS_IN_THE_PAPER: UNCLEAR}).startswith("ρ shows no clear")


def test_label_awareness_of_real_runs(setting):
    finding = label_awareness.check(setting, (PLACE,), TWO)
    (table,) = finding.tables
    assert [row[0] for row in table.rows] == list(TWO)
    ((first,),) = trained(setting, [PLACE]).values()
    expected = correlation(by_class(first, REPRESENTATION), class_counts(first[0])).value
    assert finding.numbers[f"{AS_IN_THE_PAPER}, representation"] == expected
    assert finding.figures[0].exists()


def test_the_boundary_of_what_is_clear():
    """For ten classes the largest unclear correlation is 0.632, as in tables of Spearman's test."""
    assert label_awareness._largest_unclear(10) == pytest.approx(0.632, abs=5e-4)


def test_conditions_cover_what_is_asked():
    settings = [key for condition in CONDITIONS.values() for key in condition]
    for key in ("concentration_weight_decay", "sampler", "prior", "init"):
        assert any(setting.endswith(key) for setting in settings)
    assert CONDITIONS[AS_IN_THE_PAPER] == {}

"""What the page says of tables and of ρ: decided by print, or by the runs it shows."""

import re
from pathlib import Path

import pytest

from wcdas.data import long_tail_counts
from wcdas.paper import CLAIMS
from wcdas.paper.claim import Setting, Verdict

PAGE = (Path(__file__).parents[2] / "docs" / "paper.md").read_text("utf-8")
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| .*? \| (.*?) \| (.*?) \|$", re.MULTILINE)
ROWS = {name: (verdict, found) for name, verdict, found in ROW.findall(PAGE)}
BY_PRINT = ("table-5", "initialisation-spread", "tail-and-head", "table-totals")


def test_every_claim_has_a_row():
    assert all(f"`{name}`" in PAGE for name in CLAIMS)


@pytest.mark.parametrize("name", BY_PRINT)
def test_verdicts_by_print(name, tmp_path):
    assert ROWS[name][0] == CLAIMS[name].check(Setting(tmp_path)).verdict


def test_totals_in_the_words_of_the_page(tmp_path):
    finding = CLAIMS["table-totals"].check(Setting(tmp_path))
    wrong, rows = (finding.numbers[k] for k in ("rows that contradict themselves", "rows"))
    assert f"in {wrong} of {rows} rows" in ROWS["table-totals"][1]
    gaps = [abs(float(row[-1])) for row in finding.tables[0].rows]
    assert f"by up to {max(gaps):.1f} points" in ROWS["table-totals"][1]


def test_tables_and_figures_need_data_in_quick_mode():
    """Digits decide nothing: a verdict needs numbers on the paper's data (see test_training)."""
    names = [f"table-{n}" for n in (1, 2, 3, 4, 6, 7, 8)] + [f"figure-{n}" for n in (4, 5, 7)]
    assert {ROWS[name][0] for name in names} == {Verdict.NEEDS_DATA}


def test_cifar_10_has_no_class_with_few_images():
    assert all(min(long_tail_counts(5000, 10, imbalance)) >= 20 for imbalance in (10, 100, 200))
    assert "CIFAR-10-LT has no class of fewer than 20 images" in ROWS["figure-5"][1]

"""The page on the paper says what the checks find, or what print and the runs it shows decide."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wcdas.data import long_tail_counts
from wcdas.paper import CLAIMS, Finding, Setting, Verdict
from wcdas.paper.tables import ROUNDING, measure, of_cell, read_table, totals, verdict
from wcdas.sweeps import read_results

Found = Callable[[str], Finding]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text("utf-8")
RESULTS = read_results(ROOT / "results")
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| .*? \| (.*?) \| (.*?) \|$", re.MULTILINE)
ROWS = {name: (verdict, text) for name, verdict, text in ROW.findall(PAGE)}
BY_PRINT = ("table-5", "initialisation-spread", "tail-and-head")
THEORY = re.compile(r"equation|theorem|corollary|algorithm|figure-[1236]$")


def rows() -> dict[str, str]:
    """The verdict that the page gives for each claim."""
    found = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            found |= dict.fromkeys(re.findall(r"`([a-z0-9.-]+)`", cells[0]), cells[2])
    return found


def test_every_theory_claim_is_on_the_page() -> None:
    theory = {name for name in CLAIMS if THEORY.match(name)}
    assert theory == {name for name in rows() if THEORY.match(name)}


@pytest.mark.parametrize("name", [name for name in CLAIMS if THEORY.match(name)])
def test_verdict_of_the_page(name: str, found: Found) -> None:
    assert rows()[name] == found(name).verdict


def test_every_claim_has_a_row() -> None:
    assert all(f"`{name}`" in PAGE for name in CLAIMS)


@pytest.mark.parametrize("name", BY_PRINT)
def test_verdicts_by_print(name: str, found: Found) -> None:
    assert ROWS[name][0] == found(name).verdict


def test_rows_that_do_not_add_up_in_the_words_of_the_page() -> None:
    tables = [read_table(f"table-{number}") for number in (1, 2, 4, 6, 7, 8)]
    distinct = {row for table in tables for row in totals(table)}  # some stand in several tables
    gaps = [abs(printed - mean) for *_, printed, mean in distinct]
    off = sum(gap > ROUNDING for gap in gaps)
    assert f"in {off} of {len(distinct)} rows" in PAGE
    assert f"by up to {max(gaps):.1f} points" in PAGE


@pytest.mark.parametrize("name", [f"table-{n}" for n in (1, 2, 3, 4, 6, 7, 8)])
def test_verdicts_of_tables_follow_from_the_results(name: str, tmp_path: Path) -> None:
    """Digits decide nothing: a verdict needs numbers on the paper's data (see test_runs)."""
    setting, table = Setting(tmp_path, results=RESULTS), read_table(name)
    assert ROWS[name][0] == verdict(table, measure(setting, table, of_cell)[0])


def test_figures_need_data_in_quick_mode() -> None:
    names = ["figure-4", "figure-5", "figure-7", "label-awareness"]
    assert {ROWS[name][0] for name in names} == {Verdict.NEEDS_DATA}


def test_cifar_10_has_no_class_with_few_images() -> None:
    assert all(min(long_tail_counts(5000, 10, imbalance)) >= 20 for imbalance in (10, 100, 200))
    assert "CIFAR-10-LT has no class of fewer than 20 images" in ROWS["figure-5"][1]

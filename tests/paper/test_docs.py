"""The page on the paper says what the checks find, or what print and the runs it shows decide."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wcdas.data import long_tail_counts
from wcdas.paper import CLAIMS, Finding, Verdict
from wcdas.paper.tables import ROUNDING, read_table, totals

Found = Callable[[str], Finding]
PAGE = (Path(__file__).parents[2] / "docs" / "paper.md").read_text("utf-8")
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


def test_tables_and_figures_need_data_in_quick_mode() -> None:
    """Digits decide nothing: a verdict needs numbers on the paper's data (see test_runs)."""
    names = [f"table-{n}" for n in (1, 2, 3, 4, 6, 7, 8)] + [f"figure-{n}" for n in (4, 5, 7)]
    names.append("label-awareness")
    assert {ROWS[name][0] for name in names} == {Verdict.NEEDS_DATA}


def test_cifar_10_has_no_class_with_few_images() -> None:
    assert all(min(long_tail_counts(5000, 10, imbalance)) >= 20 for imbalance in (10, 100, 200))
    assert "CIFAR-10-LT has no class of fewer than 20 images" in ROWS["figure-5"][1]

"""Verdicts follow from the numbers: other numbers, another verdict."""

from dataclasses import replace

import pytest

from wcdas.paper.claim import Setting, Verdict
from wcdas.paper.tables import (
    initialisation_spread,
    table_1,
    table_2,
    table_3,
    table_4,
    table_5,
    table_6,
    table_7,
    table_8,
    tail_and_head,
    totals,
)
from wcdas.paper.tables.judging import TOLERANCE, told, verdict
from wcdas.paper.tables.printed import Cell, Number, PrintedTable, read_table, read_toml

TABLES = {
    "table-1": table_1,
    "table-2": table_2,
    "table-3": table_3,
    "table-4": table_4,
    "table-6": table_6,
    "table-7": table_7,
    "table-8": table_8,
}


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path, device="cpu")


def changed(table: PrintedTable, row: str, column: int, value: float) -> PrintedTable:
    """The table with one printed number changed."""

    def other(old):
        if old.label != row:
            return old
        printed = (*old.printed[:column], value, *old.printed[column + 1 :])
        return replace(old, printed=printed)

    return replace(table, rows=tuple(map(other, table.rows)))


def untrained(table: PrintedTable) -> PrintedTable:
    return replace(table, parts=tuple(replace(part, digits=None) for part in table.parts))


def moved(numbers, by, cell=None):
    """Numbers all moved by some points, or one of them."""
    return {c: replace(n, mean=n.mean + by) if cell in (None, c) else n for c, n in numbers.items()}


@pytest.mark.parametrize("name", TABLES)
def test_verdict_of_a_table(name):
    table, agrees = read_table(name), TABLES[name].agrees
    printed = table.numbers

    def of(ours):
        return verdict(printed, ours, agrees(table, printed), agrees(table, ours))

    assert of(printed) == Verdict.HOLDS
    assert of({}) == Verdict.NEEDS_DATA
    assert of(moved(printed, TOLERANCE - 0.01)) == Verdict.HOLDS
    assert of(moved(printed, TOLERANCE + 0.01)) == Verdict.CORRECTED


@pytest.mark.parametrize(
    ("name", "row", "part", "metric", "by"),
    [
        ("table-1", "WCDAS, class-wise ρ", "ImageNet-LT", "all", -3),
        ("table-1", "WNDAS, one ρ", "ImageNet-LT", "all", -4),
        ("table-2", "0", "ImageNet-LT", "all", -1),
        ("table-3", "BALMS", "CIFAR-10-LT, 200", "all", 1),
        ("table-4", "LWS", "iNaturalist 2018", "all", 5),
        ("table-6", "2.0", "150 epochs", "all", -1),
        ("table-6", "2.0", "150 epochs", "few", 1),
        ("table-7", "Meta-sampling (lr = 0.01)", "ImageNet-LT", "all", 0.5),
        ("table-8", "cRT", "ImageNet-LT", "all", 3),
    ],
)
def test_another_number_refutes_a_table(name, row, part, metric, by):
    table, agrees = read_table(name), TABLES[name].agrees
    printed = table.numbers
    ours = moved(printed, by, Cell(row, part, metric))
    found = verdict(printed, ours, agrees(table, printed), agrees(table, ours))
    assert found == Verdict.REFUTED


def test_a_difference_within_the_noise_does_not_refute():
    table = read_table("table-3")
    printed = table.numbers
    rival = Cell("BALMS", "CIFAR-100-LT, 100", "all")
    quiet, noisy = Number(52.7, 0.0, 3), Number(52.7, 0.5, 3)  # WCDAS has 52.5 ± 0.1
    assert table_3.agrees(table, printed | {rival: quiet}) is False
    assert table_3.agrees(table, printed | {rival: noisy}) is True


def test_a_part_of_the_cells_is_judged_by_what_is_there():
    table = read_table("table-3")
    column = {c: n for c, n in table.numbers.items() if c.part == "CIFAR-100-LT, 100"}
    assert table_3.agrees(table, column) is True
    assert told(table.numbers, column).startswith("10 of 60 printed cells are measured, 10 of them")
    alone = {c: n for c, n in column.items() if c.row == "WCDAS"}
    assert table_3.agrees(table, alone) is None
    assert verdict(table.numbers, alone, True, None) == Verdict.NEEDS_DATA


def test_what_the_paper_prints_can_refute_it(setting):
    table = untrained(read_table("table-7"))
    assert table_7.check(setting, table).verdict == Verdict.NEEDS_DATA
    worse = changed(table, "Class balanced sampling", 3, 43.0)
    finding = table_7.check(setting, worse)
    assert finding.verdict == Verdict.REFUTED
    assert "contradict" in finding.sentence


def test_unmeasured_cells_are_empty_and_say_what_fills_them(setting):
    finding = table_4.check(setting, untrained(read_table("table-4")))
    imagenet, inaturalist = finding.tables
    assert imagenet.rows[0][:4] == ("OLTR", "43.4", "", "")
    assert "wcdas paper table-4 --mode real --data-root IMAGES" in inaturalist.note
    cifar, _ = table_3.check(setting, untrained(read_table("table-3"))).tables
    assert cifar.columns[4:7] == ("CIFAR-100-LT, 100", "ours", "Δ")
    assert "wcdas paper table-3 --mode real --out" in cifar.note


def test_hyper_parameters(setting):
    printed = read_toml("printed/table-5.toml")
    finding = table_5.check(setting, printed)
    assert finding.verdict == Verdict.CORRECTED
    assert "epochs 200 instead of 90" in finding.sentence
    inaturalist = printed["paper-wcdas-inat2018"]
    other = printed | {"paper-wcdas-inat2018": inaturalist | {"classifier": 0.3}}
    finding = table_5.check(setting, other)
    assert finding.verdict == Verdict.REFUTED
    assert "0.3 printed, 0.2 in paper-wcdas-inat2018" in finding.sentence


def test_totals_are_checked_by_hand():
    """ImageNet-LT, "WCDAS, class-wise ρ": (385·56.2 + 479·40.9 + 136·24.1)/1000 = 44.5057."""
    found = {row[2]: row[4] for row in totals._totals(read_table("table-1"))}
    assert found["WCDAS, class-wise ρ"] == pytest.approx(44.5057)


def test_totals(setting):
    assert totals.check(setting).verdict == Verdict.REFUTED
    sound = read_table("table-7")
    assert totals.check(setting, [sound]).verdict == Verdict.HOLDS
    finding = totals.check(setting, [changed(sound, "Class balanced sampling", 3, 44.7)])
    assert finding.verdict == Verdict.REFUTED
    assert finding.numbers["rows that contradict themselves"] == 1
    assert finding.tables[0].rows[0][2:5] == ("Class balanced sampling", "44.7", "44.51")


def test_spread_over_initialisations(setting):
    assert initialisation_spread.check(setting).verdict == Verdict.REFUTED
    slow = read_table("table-6")
    wider = changed(slow, "0", 3, 43.0)  # 0.7 points at 90 epochs, against 0.6
    assert initialisation_spread.check(setting, wider).verdict == Verdict.HOLDS
    longer = changed(wider, "0", 7, 43.7)  # and 0.8 at 150 epochs
    assert initialisation_spread.check(setting, longer).verdict == Verdict.CORRECTED


def test_tail_and_head(setting):
    assert tail_and_head.check(setting).verdict == Verdict.REFUTED
    table = read_table("table-4")
    assert tail_and_head.check(setting, (table,)).verdict == Verdict.REFUTED
    head = changed(table, "WCDAS (meta)", 0, 56.0)
    assert tail_and_head.check(setting, (head,)).verdict == Verdict.CORRECTED
    for rival in ("cRT", "LWS", "BALMS"):
        head = changed(head, rival, 2, 22.0)
    assert tail_and_head.check(setting, (head,)).verdict == Verdict.HOLDS

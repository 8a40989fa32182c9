"""Verdicts follow from the numbers: other numbers, another verdict."""

from dataclasses import replace

import pytest

from wcdas.paper import Verdict
from wcdas.paper.runs import read_toml
from wcdas.paper.tables import (
    TOLERANCE,
    Cell,
    Number,
    PrintedTable,
    agrees,
    check_table,
    consistency,
    read_table,
    told,
    totals,
    verdict,
)

TABLES = [f"table-{number}" for number in (1, 2, 3, 4, 6, 7, 8)]


def other_number(table: PrintedTable, row: str, column: int, value: float) -> PrintedTable:
    """The table with one printed number changed."""

    def other(old):
        if old.label != row:
            return old
        printed = [*old.printed[:column], value, *old.printed[column + 1 :]]
        return replace(old, printed=printed)

    return replace(table, rows=tuple(map(other, table.rows)))


def untrained(table: PrintedTable) -> PrintedTable:
    return replace(table, parts=tuple(replace(part, digits={}) for part in table.parts))


def moved(numbers, by, cell=None):
    """Numbers all moved by some points, or one of them."""
    return {c: replace(n, mean=n.mean + by) if cell in (None, c) else n for c, n in numbers.items()}


@pytest.mark.parametrize("name", TABLES)
def test_verdict_of_a_table(name):
    table = read_table(name)
    printed = table.numbers

    assert verdict(table, printed) == Verdict.HOLDS
    assert verdict(table, {}) == Verdict.NEEDS_DATA
    assert verdict(table, moved(printed, TOLERANCE - 0.01)) == Verdict.HOLDS
    assert verdict(table, moved(printed, TOLERANCE + 0.01)) == Verdict.CORRECTED


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
    table = read_table(name)
    ours = moved(table.numbers, by, Cell(row, part, metric))
    assert verdict(table, ours) == Verdict.REFUTED


def test_a_difference_within_the_noise_does_not_refute():
    table = read_table("table-3")
    printed = table.numbers
    rival = Cell("BALMS", "CIFAR-100-LT, 100", "all")
    quiet, noisy = Number(52.7, 0.0, 3), Number(52.7, 0.5, 3)  # WCDAS has 52.5 ± 0.1
    assert agrees(table, printed | {rival: quiet}) is False
    assert agrees(table, printed | {rival: noisy}) is True


def test_a_part_of_the_cells_is_judged_by_what_is_there():
    table = read_table("table-3")
    column = {c: n for c, n in table.numbers.items() if c.part == "CIFAR-100-LT, 100"}
    assert agrees(table, column) is True
    words, _ = told(table, column)
    assert words.startswith("10 of 60 printed cells are measured, 10 of them")
    alone = {c: n for c, n in column.items() if c.row == "WCDAS"}
    assert agrees(table, alone) is None
    assert verdict(table, alone) == Verdict.NEEDS_DATA


def test_what_the_paper_prints_can_refute_it(setting):
    table = untrained(read_table("table-7"))
    assert check_table(setting, table).verdict == Verdict.NEEDS_DATA
    worse = other_number(table, "Class balanced sampling", 3, 43.0)
    finding = check_table(setting, worse)
    assert finding.verdict == Verdict.REFUTED
    assert "contradict" in finding.sentence


def test_unmeasured_cells_are_empty_and_say_what_fills_them(setting):
    finding = check_table(setting, untrained(read_table("table-4")))
    imagenet, inaturalist = finding.tables
    assert imagenet.rows[0][:4] == ("OLTR", "43.4", "", "")
    assert "wcdas paper table-4 --mode real --data-root IMAGES" in inaturalist.note
    cifar, _ = check_table(setting, untrained(read_table("table-3"))).tables
    assert cifar.columns[4:7] == ("CIFAR-100-LT, 100", "ours", "Δ")
    assert "wcdas paper table-3 --mode real --out" in cifar.note


def test_hyper_parameters(found, changed):
    finding = found("table-5")
    assert finding.verdict == Verdict.CORRECTED
    assert "epochs 200 instead of 90" in finding.sentence
    printed = read_toml("tables/table-5.toml")
    printed["paper-wcdas-inat2018"]["classifier"] = 0.3
    finding = changed("table-5", read_toml=lambda name: printed)
    assert finding.verdict == Verdict.REFUTED
    assert "0.3 printed, 0.2 in paper-wcdas-inat2018" in finding.sentence


def test_totals_are_checked_by_hand():
    """ImageNet-LT, "WCDAS, class-wise ρ": (385·56.2 + 479·40.9 + 136·24.1)/1000 = 44.5057."""
    found = {row[1]: row[3] for row in totals(read_table("table-1"))}
    assert found["WCDAS, class-wise ρ"] == pytest.approx(44.5057)


def test_rows_that_do_not_add_up_are_noted_and_decide_nothing(setting):
    sound = read_table("table-7")
    assert consistency(sound) == ""
    unsound = other_number(sound, "Class balanced sampling", 3, 44.7)
    note = consistency(unsound)
    assert "in 1 of 4 rows" in note
    assert "Class balanced sampling on imagenet-lt, 44.7 where its groups give 44.5" in note
    finding = check_table(setting, untrained(unsound))
    assert finding.sentence.endswith(note)
    assert finding.verdict == Verdict.NEEDS_DATA
    assert consistency(read_table("table-3")) == ""  # it has no groups


def test_spread_over_initialisations(found, changed):
    def verdict_with(slow):
        tables = {"table-6": slow, "table-2": read_table("table-2")}
        return changed("initialisation-spread", read_table=tables.__getitem__).verdict

    assert found("initialisation-spread").verdict == Verdict.REFUTED
    wider = other_number(read_table("table-6"), "0", 3, 43.0)  # 0.7 points at 90 epochs, not 0.6
    assert verdict_with(wider) == Verdict.HOLDS
    longer = other_number(wider, "0", 7, 43.7)  # and 0.8 at 150 epochs
    assert verdict_with(longer) == Verdict.CORRECTED


def test_tail_and_head(found, changed):
    """Whether the row with 25.3 keeps the head of the row with 22.5, which is 55.4."""
    finding = found("tail-and-head")
    assert finding.verdict == Verdict.REFUTED
    assert "t-vMF Similarity, that with 25.3 WCDAS (meta)" in finding.sentence
    assert "-1.6 points" in finding.sentence
    keeps = other_number(read_table("table-4"), "WCDAS (meta)", 0, 55.4)
    loses = other_number(keeps, "WCDAS (meta)", 0, 55.3)
    assert changed("tail-and-head", read_table=lambda name: keeps).verdict == Verdict.HOLDS
    assert changed("tail-and-head", read_table=lambda name: loses).verdict == Verdict.REFUTED

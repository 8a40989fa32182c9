"""Numbers that `wcdas results` kept stand beside the paper's where a mode trains none."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wcdas.errors import InputError
from wcdas.paper import CLAIMS, Finding, Setting, Verdict
from wcdas.paper.folder import fingerprint
from wcdas.paper.run import run_paper
from wcdas.paper.tables import measure, of_cell, read_table, verdict
from wcdas.run.recipes import read_settings
from wcdas.run.settings import read_own, remembered
from wcdas.sweeps.results import METRICS
from wcdas.sweeps.results_file import given_settings


def lines_of(name: str, part: int, rows: int) -> list[dict]:
    """Results with the very numbers that the paper prints, for the first rows of a part."""
    table, lines = read_table(name), []
    shown = table.columns.index((table.parts[part], "all"))
    for row in table.rows[:rows]:
        one = of_cell(row, table.parts[part])
        recipe = read_own(one.recipe)[0] if one.recipe else {}
        metrics = dict.fromkeys(METRICS, row.printed[shown] / 100)
        metrics |= {"headline": "top1", "test_images": 9, "never_predicted": 0}
        line = {
            "dataset": one.data,
            "imbalance": one.imbalance,
            "settings": given_settings(remembered(recipe, read_settings(dict(one.settings)))),
            "method": row.method,
            "metrics": metrics,
            "seconds": 1.0,
            "device": "cpu",
            "threads": None,
            "code": {},
            "versions": {},
            "fingerprint": "",
        }
        lines += [line | {"seed": seed} for seed in range(one.seeds)]
    return lines


@pytest.mark.parametrize(("name", "part"), [("table-2", 0), ("table-3", 1), ("table-6", 1)])
def test_cells_are_those_of_the_results(name: str, part: int, tmp_path: Path) -> None:
    table = read_table(name)
    setting = Setting(tmp_path, results=lines_of(name, part, len(table.rows)))
    ours, reasons = measure(setting, table, of_cell)
    label = table.parts[part].label
    printed = {cell: n.mean for cell, n in table.numbers.items() if cell[1:] == (label, "all")}
    assert {cell: ours[cell].mean for cell in printed} == pytest.approx(printed)
    assert {cell.part for cell in ours} == {label}
    assert reasons == {}
    assert list(tmp_path.iterdir()) == []
    both_parts = "rises" in table.says  # from one to the other
    assert (verdict(table, ours) == Verdict.NEEDS_DATA) == both_parts


def test_a_mode_that_trains_goes_by_its_own_runs(tmp_path: Path) -> None:
    setting = Setting(tmp_path, "real", tmp_path, "cpu", results=lines_of("table-2", 0, 7))
    ours, reasons = measure(setting, read_table("table-2"), of_cell)
    assert ours == {}
    assert "imagenet-lt is not in" in reasons["ImageNet-LT"]


def test_rows_that_nobody_has_run_are_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("wcdas.paper.tables.of_stand_in", lambda row, part: None)
    lines = lines_of("table-3", 1, 8)
    finding = CLAIMS["table-3"].check(Setting(tmp_path, device="cpu", results=lines))
    assert finding.sentence.startswith("8 of 60 printed cells are measured, 8 of them within")
    cifar100, cifar10 = finding.tables
    assert "Not measured on CIFAR-100-LT, 100: t-vMF Similarity, WCDAS; on one GPU" in cifar100.note
    assert "Empty cells have not been measured" in cifar10.note
    assert cifar100.rows[0][4:6] == ("43.8 ± 0.1", "43.8 ± 0.0")


def test_other_settings_are_other_runs(tmp_path: Path) -> None:
    lines = [line | {"settings": line["settings"] | {"batch_size": 64}} for line in
             lines_of("table-3", 1, 10)]  # fmt: skip
    ours, _ = measure(Setting(tmp_path, results=lines), read_table("table-3"), of_cell)
    assert ours == {}


def test_a_verdict_rests_on_the_results(tmp_path: Path) -> None:
    lines = lines_of("table-2", 0, 1)
    assert fingerprint(Setting(tmp_path)) != fingerprint(Setting(tmp_path, results=lines))


@pytest.fixture
def asked(monkeypatch) -> Callable[..., Setting]:
    """The setting that `run_paper` hands to its checks."""
    seen: list[Setting] = []

    def check(setting: Setting) -> Finding:
        """Nothing."""
        seen.append(setting)
        return Finding(Verdict.HOLDS, "It is so.")

    monkeypatch.setitem(CLAIMS, "table-2", replace(CLAIMS["table-2"], check=check))

    def run(**options: object) -> Setting:
        run_paper(["table-2"], **options)
        return seen[-1]

    return run


def test_where_results_are_looked_for(asked, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    line, *_ = lines_of("table-2", 0, 1)
    other = line | {"seed": 1}
    assert list(asked(out="none").results) == []
    for folder, one in {"results": line, "others": other}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.jsonl").write_text(json.dumps(one) + "\n")
    assert asked(out="here").results == [line]
    assert asked(out="named", results="others").results == [other]
    with pytest.raises(InputError, match="nowhere holds no results"):
        asked(out="refused", results="nowhere")
    assert not (tmp_path / "refused").exists()

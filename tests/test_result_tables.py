"""The tables of README.md and docs/ are made from results/, and from nothing else."""

import json
import shlex
from pathlib import Path

import pytest
from results import tables
from results.tables import BEGIN, END, HERE, PAGES, answer, rewritten

from wcdas.errors import InputError
from wcdas.paper.tables import of_cell, read_table
from wcdas.run.recipes import read_settings
from wcdas.run.settings import read_own, remembered
from wcdas.sweeps import read_results
from wcdas.sweeps.plan import Asked, new_plan
from wcdas.sweeps.results import METRICS
from wcdas.sweeps.results_file import given_settings, identity

LINES = read_results(HERE)
WITH_TABLES = [page for page in PAGES if BEGIN in page.read_text("utf-8")]


@pytest.mark.parametrize("page", WITH_TABLES, ids=lambda page: page.name)
def test_a_page_says_what_the_results_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text, LINES) == text, "`make tables` writes it anew"


def test_a_page_that_says_something_else_is_noticed() -> None:
    for page in WITH_TABLES:
        text = page.read_text(encoding="utf-8")
        begin = text.index(" | ", text.index("| --- |", text.index(BEGIN)) + 100)
        assert rewritten(f"{text[:begin]}9{text[begin:]}", LINES) == text


@pytest.mark.parametrize("file", sorted(HERE.glob("*.jsonl")), ids=lambda file: file.name)
def test_files_are_as_the_command_writes_them(file: Path) -> None:
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    assert [json.dumps(line) for line in lines] == file.read_text().splitlines()
    assert {line["dataset"] for line in lines} == {file.stem}
    assert list(map(identity, lines)) == sorted(set(map(identity, lines)))


def line(method="softmax", seed=0, value=0.5, **others):
    metrics = dict.fromkeys(METRICS, value)
    return LINES[0] | {
        "dataset": "cifar100-lt",
        "imbalance": 100.0,
        "settings": {},
        "method": method,
        "seed": seed,
        "metrics": metrics | {"headline": "top1", "test_images": 5000, "never_predicted": 0},
        "code": {"source": "0123", "commit": "4567"},
    } | others  # fmt: skip


def test_a_table_has_what_was_asked_for():
    lines = [line(), line("wcdas", value=0.625), line(settings={"epochs": 9}, value=0.25)]
    text = f"before\n\n{BEGIN}cifar100-lt methods=wcdas -->\n\nold\n\n{END}\n\nafter\n"
    assert rewritten(text, lines) == (
        f"before\n\n{BEGIN}cifar100-lt methods=wcdas -->\n\n"
        "| method | seeds | many (> 100) | medium (20–100) | few (< 20) | all |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| `wcdas` | 1 | 62.5 | 62.5 | 62.5 | 62.5 |\n\n"
        f"{END}\n\nafter\n"
    )
    assert "| `softmax` | 1 | 25.0 |" in answer("cifar100-lt epochs=9", lines)
    assert "`wcdas`" in answer("cifar100-lt data.imbalance=100", lines)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("cifar100-lt methods=softmax,crt", "results/ has no runs of crt for"),
        ("cifar100-lt epochs=3", "results/ has no runs of any method"),
        ("cifar100-lt", "differ in imbalance 10 of data"),
    ],
)
def test_what_is_not_there_is_refused(query, told):
    with pytest.raises(InputError, match=told):
        answer(query, [line(), line("wcdas", imbalance=10.0)] if told[0] == "d" else [line()])


def test_a_table_without_an_end_is_refused():
    with pytest.raises(InputError, match="does not end"):
        rewritten(f"{BEGIN}all -->\n", LINES)
    with pytest.raises(InputError, match="does not end"):
        rewritten(f"{BEGIN}all -->\n{BEGIN}paper -->\n{END}\n{END}", LINES)


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        (None, {}),
        (None, {"backbone.name": "resnet8", "stages.classifier.lr": 0.05, "frozen": False}),
        ("paper-wcdas-cifar100-lt", {"neck.name": "linear"}),
    ],
)
def test_a_section_has_the_command_that_trains_its_runs(recipe, settings):
    given = given_settings(
        remembered(read_own(recipe)[0] if recipe else {}, read_settings(settings))
    )
    lines = [line(settings=given), line("wcdas", seed=1, settings=given)]
    section = answer("all", lines)
    (command,) = (text for text in section.splitlines() if text.startswith("Again: "))
    words = shlex.split(command.removeprefix("Again: ").strip("`"))
    options = dict(zip(words[3:9:2], words[4:9:2], strict=False))
    assert (words[:3], options["--methods"], options["--seeds"]) == (
        ["wcdas", "sweep", "cifar100-lt"], "softmax,wcdas", "2",
    )  # fmt: skip
    assert options.get("--recipe") == recipe
    asked = Asked(words[2], options["--methods"], 2, recipe, words[words.index("--set") + 1 :])
    plan = new_plan(asked)
    assert given_settings(remembered(plan.recipe, plan.settings)) == given
    assert plan.data["imbalance"] == 100
    assert "2 runs on 5,000 test images" in section
    assert "commit 4567" in section
    assert "`crt`" in section  # which nobody has run so


def runs_of_table_3(*differences: float) -> list[dict]:
    """Lines for some rows of CIFAR-100-LT at imbalance 100, so far from what the paper prints."""
    table = read_table("table-3")
    part, lines = table.parts[1], []
    for row, difference in zip(table.rows[::-1], differences, strict=False):
        one = of_cell(row, part)
        recipe, settings = read_own(one.recipe)[0], read_settings(dict(one.settings))
        given = given_settings(remembered(recipe, settings))
        value = (row.printed[1] + difference) / 100
        lines += [line(row.method, seed, value, settings=given) for seed in range(3)]
    return lines


def test_the_papers_numbers_stand_beside_ours():
    told = answer("paper", runs_of_table_3(0.0, -2.0))
    assert "### Table 3" in told
    assert "|  | CIFAR-100-LT, 100 | ours | Δ |" in told
    assert "| WCDAS | 52.5 ± 0.1 | 52.5 ± 0.0 | " in told
    assert "| t-vMF Similarity | 50.3 ± 0.5 | 48.3 ± 0.0 | -2.0 |" in told
    said = "t-vMF Similarity, CIFAR-100-LT, 100, all: 48.3 ± 0.0, the paper has 50.3 ± 0.5: 2.0"
    assert f"- {said} points lower." in told
    assert "- 1 of 2 measured cells are within 1.5 points." in told
    assert "CIFAR-100-LT, 100: Focal loss, LDAM loss" in told
    assert "CIFAR-10-LT, 10: all rows." in told
    assert "CIFAR-10-LT, 10 |" not in told  # no empty columns
    assert told.splitlines()[-1].startswith("No run yet of table-1, table-2, table-4, table-6")


def test_the_verdict_follows_from_the_runs():
    assert "By what is measured: *holds*." in answer("paper", runs_of_table_3(0.0, 0.0))
    assert "By what is measured: *refuted as stated*." in answer("paper", runs_of_table_3(-3.0, 0))


def test_without_runs_the_tables_are_named_alone():
    told = answer("paper", [line(settings={"epochs": 1})])
    assert told.startswith(f"No run yet of {', '.join(tables.TABLES)}: `wcdas paper table-1 --mode")

"""Names of files and classes come out whole and harmless in every format."""

import csv
import io
import json

import pytest

from wcdas.deploy.answers import Answer, Guess
from wcdas.deploy.predicting import FORMATS, choose_format

NAMES = ["<img src=x onerror=alert(1)>", '=cmd|"x"!A1', "a,b", "two\nlines\r\nand more",
         "\x1b[31mred", "+1", "-2", "@sum", "\ttab", "\rreturn", "＝1", "été", "\u202eright",
         "\udcff", "line\u2028end", "plain"]  # fmt: skip


def written(form: str, *answers: Answer, top: int = 1) -> str:
    file = io.StringIO(newline="")
    write = FORMATS[form](file, top)
    for answer in answers:
        write(answer)
    return file.getvalue()


def answer(name: str, file: str = "x.jpg", unsure: bool = False) -> Answer:
    return Answer(file, [Guess(name, 0.98765432, "few", 7)], unsure)


@pytest.mark.parametrize("name", NAMES)
def test_text_is_one_line_without_control_characters(name):
    text = written("text", answer(name, file=name))
    assert text.endswith("98.8 % (few)\n")
    assert text[:-1].isprintable()
    if name.isprintable():
        assert text == f"{name}: {name} 98.8 % (few)\n"


@pytest.mark.parametrize("name", NAMES)
def test_csv_gives_the_names_back_but_no_formulas(name):
    header, row = csv.reader(io.StringIO(written("csv", answer(name, file=name)), newline=""))
    assert header == ["file", "status", "answer", "class_1", "probability_1", "group_1", "error"]
    assert row[1] == "ok"
    assert row[4:] == ["0.987654", "few", ""]
    for cell in (row[0], row[2], row[3]):
        assert cell[0] not in "=+-@\t\r\n＝"
        assert cell == name or (cell == f"'{name}" and name != "plain")


@pytest.mark.parametrize("name", NAMES)
def test_json_lines_are_exact(name):
    text = written("jsonl", answer(name, file=name))
    assert len(text.splitlines()) == 1  # also for those who take U+2028 for the end of one
    table = json.loads(text)
    assert (table["file"], table["answer"], table["top"][0]["class"]) == (name, name, name)
    assert table["top"][0] == {"class": name, "probability": 0.987654, "group": "few",
                               "train_images": 7}  # fmt: skip


def test_unsure_and_unreadable():
    two = [Guess("cat", 0.4, "many", 500), Guess("dog", 0.3, "few", 3)]
    answers = [Answer("a.jpg", two, unsure=True), Answer("b.jpg", error="the file is 3")]
    assert written("text", *answers, top=2) == (
        "a.jpg: unsure: cat 40.0 % (many), dog 30.0 % (few)\nb.jpg: the file is 3\n"
    )
    rows = list(csv.DictReader(io.StringIO(written("csv", *answers, top=2))))
    assert [row["status"] for row in rows] == ["unsure", "unreadable"]
    assert [row["answer"] for row in rows] == ["", ""]
    assert [row["class_2"] for row in rows] == ["dog", ""]
    assert [row["error"] for row in rows] == ["", "the file is 3"]
    tables = [json.loads(line) for line in written("jsonl", *answers).splitlines()]
    assert [table["answer"] for table in tables] == [None, None]
    assert tables[1] == {"file": "b.jpg", "status": "unreadable", "answer": None, "top": [],
                         "error": "the file is 3"}  # fmt: skip


def test_the_format_follows_from_the_name(tmp_path, refused):
    assert choose_format(None, None) == "text"
    assert choose_format(None, tmp_path / "x.CSV") == "csv"
    assert choose_format("jsonl", tmp_path / "x.txt") == "jsonl"
    refused("unknown format 'json'; did you mean 'jsonl'?", choose_format, "json", None)
    refused("expected a name in .csv", choose_format, None, tmp_path / "photo.jpg")

"""Of very many classes a page shows those that are told apart on a chart, and all that it names."""

import json
import re

import pytest

from wcdas.report import write_report
from wcdas.report.charts import run_charts
from wcdas.report.record import read_record
from wcdas.report.thinning import shown_classes, thinned

MOST = 500  # of 8,142 classes


@pytest.fixture
def few_shown(monkeypatch):
    monkeypatch.setattr("wcdas.report.thinning.MOST", MOST)


def written(page):
    """What the script of a page is given."""
    text = page.read_text("utf-8")
    return text, json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_all_of_few_classes(many_classes, tmp_path):
    text, data = written(write_report(many_classes, out=tmp_path))
    assert len(data["classes"]) == 8142
    assert "Charts and table have" not in text


def test_classes_of_every_size_and_those_that_are_named(few_shown, many_classes):
    record = read_record(many_classes)
    shown = shown_classes(record)
    named = {c for row in record.measured["map"]["rows"] for c in row[2:]}
    for pair in record.measured["confusions"]:
        named |= {pair["true"], pair["predicted"]}
    assert shown == sorted({*range(0, 8142, 17), *named})  # the classes are in order of size


def test_a_page(few_shown, many_classes, tmp_path):
    record = read_record(many_classes)
    shown = shown_classes(record)
    text, data = written(write_report(many_classes, out=tmp_path))
    assert data["classes"] == [record.class_names[c] for c in shown]
    assert f"Charts and table have {len(shown):,} of the 8,142" in text
    columns = {column["title"]: column["values"] for column in data["columns"]}
    assert columns["training images"] == [record.class_counts[c] for c in shown]
    taken = [record.metrics["per_class"][c]["most_confused_with"] for c in shown]
    assert columns["most taken for"] == taken


def test_the_dots_are_those_of_their_classes(few_shown, many_classes):
    record = read_record(many_classes)
    charts, shown = run_charts(record), shown_classes(record)
    some = thinned(charts, shown)
    for name in ("accuracy", "rho", "tail", "map"):
        for whole, part in zip(charts[name].series, some[name].series, strict=True):
            if whole.classes is None:
                assert part == whole  # such as the mean over all classes
                continue
            points = set(zip(whole.x, whole.y, whole.classes, strict=True))
            found = [(x, y, shown[c]) for x, y, c in zip(part.x, part.y, part.classes, strict=True)]
            assert set(found) <= points
            assert len(found) == sum(c in set(shown) for c in whole.classes)
    assert len(some["map"].series[0].x) == len(charts["map"].series[0].x)

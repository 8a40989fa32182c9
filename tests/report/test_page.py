"""The page: complete, in one file, readable, and nothing in it is taken for markup."""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from wcdas.report import write_report
from wcdas.report.charts import DARK, LIGHT
from wcdas.report.page import LIBRARY, TEMPLATES

MARKUP = "<img src=x onerror=alert(1)>"
VOID = {"meta", "img", "input"}
SECTIONS = [
    "result", "next", "classes", "rho", "angles", "training",
    "confusions", "reliability", "map", "tail", "reproduce",
]  # fmt: skip
# As published: npm's echarts 6.1.0, dist/echarts.common.min.js.
LIBRARY_SHA256 = "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"


class Parsed(HTMLParser):
    """Tags and text of a page; fails where a tag is closed that is not open."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.data = ""
        self.feed(path.read_text("utf-8"))
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            kind = next(a for t, a in reversed(self.tags) if t == "script")
            if kind:
                self.data = data
            else:
                self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.tags if name == tag)


@pytest.fixture
def digits_page(digits_run):
    return Parsed(digits_run.path / "report.html")


@pytest.fixture
def odd_page(odd_run):
    return Parsed(odd_run.path / "report.html")


def test_every_section_is_there_and_linked(digits_page):
    assert [a["id"] for a in digits_page.of("section")] == SECTIONS
    links = [a["href"] for a in digits_page.of("a")]
    assert {f"#{name}" for name in SECTIONS} <= set(links)


def test_headline_numbers_and_stages(digits_page, digits_run):
    for key in ("many", "medium", "few", "top1", "top5", "macro_f1", "ece"):
        assert f"{100 * digits_run.metrics[key]:.1f}" in digits_page.text
    marks = json.loads(digits_page.data)["charts"]["learning"]["marks"]
    assert [name for _, name in marks] == ["representation", "classifier"]


def test_one_file_that_asks_for_nothing(digits_page):
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in digits_page.tags}
    assert all("src" not in a for a in digits_page.of("script"))
    assert all(a["src"].startswith("data:image/") for a in digits_page.of("img"))
    policy = next(a["content"] for a in digits_page.of("meta") if "http-equiv" in a)
    assert "default-src 'none'" in policy
    allowed = re.search("script-src ([^;]*)", policy)[1].split()
    digests = [hashlib.sha256(s.encode()).digest() for s in digits_page.scripts]
    assert allowed == [f"'sha256-{base64.b64encode(d).decode()}'" for d in digests]


def test_the_library_is_whole_and_keeps_its_licence(digits_run):
    library = (TEMPLATES / LIBRARY).read_bytes()
    assert hashlib.sha256(library).hexdigest() == LIBRARY_SHA256
    page = (digits_run.path / "report.html").read_text("utf-8")
    assert "Licensed to the Apache Software Foundation (ASF)" in page
    assert "Copyright 2017-2026 The Apache Software Foundation" in page


def test_names_appear_as_text(odd_page):
    assert MARKUP in odd_page.text
    assert not any(a["src"] == "x" or "onerror" in a for a in odd_page.of("img"))
    assert "</" not in odd_page.data
    assert MARKUP in json.loads(odd_page.data)["classes"]
    shown = [a["alt"] for a in odd_page.of("img")]
    assert any('"pic\'ture" <b>' in alt for alt in shown)


def test_a_comparison_shows_names_as_text(odd_run, odd_softmax, tmp_path):
    page = Parsed(write_report(odd_run, odd_softmax, out=tmp_path / "both"))
    assert not list(page.of("img"))
    assert "</" not in page.data
    assert MARKUP in json.loads(page.data)["classes"]


def test_a_class_without_test_images(odd_page):
    data = json.loads(odd_page.data)
    untested = data["classes"].index("never tested")
    columns = {column["title"]: column["values"] for column in data["columns"]}
    assert columns["test images"][untested] == 0
    assert columns["accuracy %"][untested] is None
    dots = [c for series in data["charts"]["accuracy"]["series"] for c in series["classes"]]
    assert untested not in dots
    assert "1 class has no test images" in odd_page.text
    assert "Put images of every class in the test set." in odd_page.text


def test_pictures_have_alternatives_and_charts_are_told(digits_page, digits_run):
    pictures = list(digits_page.of("img"))
    assert pictures
    assert all(a["alt"] for a in pictures)
    ids = {a["id"] for _, a in digits_page.tags if "id" in a}
    plots = [a for a in digits_page.of("div") if "data-chart" in a]
    assert len(plots) == len(json.loads(digits_page.data)["charts"])
    for plot in plots:
        assert plot["aria-label"]
        assert plot["tabindex"] == "0"
        assert set(plot["aria-describedby"].split()) <= ids
    text = (digits_run.path / "report.html").read_text("utf-8")
    for name in json.loads(digits_page.data)["charts"]:
        told = re.search(f'<span id="told-{name}">([^<]*)</span>', text)[1]
        assert len(told) > 20
        assert told.endswith(".")


def test_a_head_without_rho(odd_softmax):
    page = Parsed(odd_softmax.path / "report.html")
    assert "The head linear has no concentration ρ" in page.text
    assert not any(a.get("data-chart") in ("rho", "rho-training") for a in page.of("div"))


@pytest.mark.slow
def test_names_that_utf8_cannot_hold(digits_run, tmp_path):
    copy = shutil.copytree(digits_run.path, tmp_path / "run")
    metrics = json.loads((copy / "metrics.json").read_text())
    metrics["per_class"][3]["class"] = "caf\udce9\x01"
    (copy / "metrics.json").write_text(json.dumps(metrics))
    page = Parsed(write_report(copy, figures=True))
    assert json.loads(page.data)["classes"][3] == "caf\udce9\x01"
    ElementTree.parse(copy / "figures" / "map.svg")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_passes(theme):
    found = re.findall(
        r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", (TEMPLATES / "page.css").read_text()
    )
    colours = {name: pair[theme] for name, *pair in found}
    assert len(colours) == 9
    for back in ("back", "card"):
        for name in ("text", "soft", "link", "good", "bad"):
            assert contrast(colours[name], colours[back]) >= 4.5, (name, back)
        assert contrast(colours["line"], colours[back]) >= 3
    for ink in (LIGHT, DARK)[theme]:
        assert contrast(ink, colours["back"]) >= 3


def test_a_rho_that_has_not_moved_is_not_read(digits_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(digits_run, run)
    told = "Here it says nothing"
    for rho, silent in (([0.27] * 9 + [0.28], True), ([0.27] * 9 + [0.4], False)):
        measured = json.loads((run / "report.json").read_text()) | {"rho": rho}
        (run / "report.json").write_text(json.dumps(measured))
        assert (told in write_report(run).read_text("utf-8")) is silent

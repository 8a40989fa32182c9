"""The page: complete, in one file, and nothing in it is taken for markup."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from wcdas.paper import CLAIMS
from wcdas.paper.claim import Claim, Finding, Setting, Table, Verdict
from wcdas.paper.folder import Result
from wcdas.paper.page import write_page
from wcdas.paper.run import run_paper
from wcdas.paper.typeset import typeset

VOID = {"meta", "img"}


class Balanced(HTMLParser):
    """Collects tags and text, and fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(page: Path) -> Balanced:
    parser = Balanced()
    parser.feed(page.read_text("utf-8"))
    assert not parser.open
    return parser


def test_page_is_one_file_and_complete(tmp_path: Path) -> None:
    names = ["theorem-4", "equation-47", "equation-10"]
    done = run_paper(names, out=tmp_path / "paper")
    page = parsed(done.page)
    assert {a["id"] for t, a in page.seen if t == "article"} == set(names)
    links = [a["href"] for t, a in page.seen if t == "a"]
    assert {f"#{name}" for name in names} <= set(links)
    sources = [a["src"] for t, a in page.seen if t == "img"]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not re.search(r"<(script|link|iframe)", done.page.read_text())
    for name in names:
        claim, finding = CLAIMS[name], done.results[name].finding
        for words in (claim.place, claim.statement, claim.tolerance, finding.sentence):
            assert typeset(words).striptags() in " ".join(page.text.split())
        assert finding.verdict in page.text
        assert f"({claim.check.__module__})" in page.text


def test_everything_is_escaped(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = '<script>alert("1")</script> & <b>'
    claim = Claim("equation-1", evil, evil, "a second", lambda s: finding, evil)
    table = Table(evil, (evil, evil), ((evil, evil),), evil)
    finding = Finding(Verdict.HOLDS, evil, {evil: 1.0}, (), (table,))
    monkeypatch.setitem(CLAIMS, "equation-1", claim)
    setting.out.mkdir()
    page = write_page(setting, {"equation-1": Result(finding, 1.0)}, {"equation-2": evil})
    tags = {tag for tag, _ in parsed(page).seen}
    assert not tags & {"script", "b"}
    assert parsed(page).text.count(evil) >= 10


def test_a_page_for_dark_rooms_and_phones(tmp_path: Path) -> None:
    page = run_paper(["equation-51"], out=tmp_path / "paper").page.read_text()
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport" content="width=device-width' in page

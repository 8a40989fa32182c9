"""Every block of code of every page is run, in a folder like a reader's; training takes one epoch,
a sweep one seed, and the first run writes a report where the page speaks of it.

`<!-- not run: REASON -->` above a block excuses it. The reasons are counted here, and the commands
of such a block must exist all the same.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image
from typer.main import get_command

import wcdas
from wcdas import cli, usage
from wcdas.report import report_on

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*?) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NOT_CODE = {"text"}
NOT_RUN = {
    "it sets up the machine": 4,
    "it needs a GPU": 4,
    "it needs data from the network": 6,
    "it takes long": 13,
    "it runs until it is stopped": 2,
    "it needs several processes": 7,
    "it needs the weights of a transformer": 1,
}


class Block(NamedTuple):
    language: str
    code: str
    reason: str | None
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["language"], found["code"], found["reason"], text.count("\n", 0, found.start(3))
        )
        for found in BLOCK.finditer(text)
    ]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


QUICK = ("README.md", "docs/start.md", "docs/use-a-head.md", "docs/heads/wcdas.md")


def with_code() -> list[Any]:
    pages = [
        page
        for page in PAGES
        if any(b.language not in NOT_CODE and b.reason is None for b in blocks(page))
    ]
    return [
        pytest.param(page, marks=[] if named(page) in QUICK else [pytest.mark.slow])
        for page in pages
    ]


@pytest.fixture(scope="session")
def reader(pictures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has: pictures in folders, a list of them, and two runs on the first folder."""
    home = tmp_path_factory.mktemp("reader")
    pictures(home / "pictures", china=12, flower=8, roof=4)
    pictures(home / "other-pictures", china=3, flower=3)
    (home / "photos").mkdir()
    for name in ("photo.jpg", "photos/1.png"):
        Image.open(next((home / "other-pictures" / "china").iterdir())).save(home / name)
    (home / "lists").mkdir()
    (home / "lists" / "names.txt").write_text("china\nflower\nroof\n")
    files = sorted((home / "pictures").rglob("*.*"))
    lines = [f"{file.relative_to(home / 'pictures')} {file.parent.name}\n" for file in files]
    (home / "lists" / "train.txt").write_text("".join(lines))
    settings = {"epochs": 1, "backbone.name": "resnet8"}
    wcdas.train(home / "pictures", "softmax", settings=settings, out=home / "RUN", device="cpu")
    shutil.copytree(home / "RUN", home / "OTHER_RUN")
    return home


@pytest.fixture
def here(reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for entry in (*reader.iterdir(), ROOT / "benchmarks", ROOT / "examples"):
        if entry.name == "RUN":  # which pages write into
            shutil.copytree(entry, tmp_path / entry.name)
        else:
            (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("WCDAS_DATA", raising=False)
    return tmp_path


@pytest.fixture
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    connect, asked = socket.socket.connect, []

    def local(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            asked.append(address)
            raise OSError("an example of the documentation opens a connection")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)
    yield
    assert not asked


@pytest.fixture
def _methods_as_before() -> Iterator[None]:
    before = dict(wcdas.METHODS)
    yield
    wcdas.METHODS.clear()
    wcdas.METHODS.update(before)


@pytest.mark.usefixtures("_no_network", "_methods_as_before")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", with_code(), ids=named)
def test_blocks_run(page: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))  # of features
    reports = iter([report_on] if "report.html" in page.read_text("utf-8") else [])
    unwritten = lambda *given: None  # noqa: E731
    monkeypatch.setattr("wcdas.api.report_on", lambda *given: next(reports, unwritten)(*given))
    names: dict[str, Any] = {"__name__": "__example__"}
    for block in blocks(page):
        if block.reason is not None or block.language in NOT_CODE:
            continue
        if block.language == "python":  # a traceback shows the page's line
            exec(compile("\n" * (block.line + 1) + block.code, str(page), "exec"), names)
        elif block.language == "toml":
            title = block.code.partition("\n")[0].removeprefix("# ")
            (here / title).write_text(block.code, encoding="utf-8")
        else:
            assert block.language == "sh", f"line {block.line}: ```{block.language}"
            for line in block.code.splitlines():
                with monkeypatch.context() as environment:
                    run_line(line, environment)


def run_line(line: str, environment: pytest.MonkeyPatch) -> None:
    """A line as a shell would run it; `wcdas` and examples run here, which saves their imports."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment.setenv(name, value)
    if not words:
        return
    if words[:1] == ["python"] and words[1].startswith("examples/"):
        environment.setattr(sys, "argv", words[1:])
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(words[1], run_name="__main__")
        return
    trains = re.search(r"\b(wcdas|wcdas\.cli) (train|sweep)\b", line)
    shorter = ["--set", "epochs=1"] if trains and "--resume" not in words else []
    if trains and (trains[2] == "sweep" or words[0] != "wcdas"):  # other processes may be at work
        shorter += ["--no-report"]
    if trains and trains[2] == "sweep":
        shorter += ["--seeds", "1"]
    if words[0] != "wcdas":
        command = " ".join([line.partition(" #")[0], *shorter])
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return
    said, target = io.StringIO(), None
    if ">" in words:
        target, words = Path(words[-1]), words[: words.index(">")]
    with contextlib.redirect_stdout(said):
        status = usage.run(cli.app, [*map(os.path.expanduser, words[1:]), *shorter])
    assert status == 0, f"{line}\n{said.getvalue()}"
    assert "the run goes on without it" not in said.getvalue()  # no logger failed
    if target is not None:
        target.write_text(said.getvalue())


def test_what_is_not_run_is_counted() -> None:
    excused = Counter(block.reason for page in PAGES for block in blocks(page))
    del excused[None]
    assert excused == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_block_escapes(page: Path) -> None:
    """Fences that are indented or of another kind would be neither shown nor run as code."""
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^\s*(```|~~~)", text, re.MULTILINE)) == 2 * len(blocks(page))
    assert {block.language for block in blocks(page)} <= {"python", "sh", "toml", "text"}
    excuses = re.findall(r"<!-- not run", text)
    assert len(excuses) == len([block for block in blocks(page) if block.reason is not None])


def test_commands_that_are_not_run_exist() -> None:
    group = get_command(cli.app)
    lines = [
        line
        for page in PAGES
        for block in blocks(page)
        if block.reason is not None and block.language == "sh"
        for line in block.code.splitlines()
    ]
    for line in lines:
        words = shlex.split(line.partition(" > ")[0], comments=True)
        starts = [i for i, word in enumerate(words) if word in ("wcdas", "wcdas.cli")]
        if starts:
            name, *rest = usage.spread_settings(words[starts[0] + 1 :])
            group.commands[name].make_context(name, rest)  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES[:2], ids=named)
def test_links_of_what_mkdocs_does_not_build(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not missing

"""The documentation: its examples run, and its pages are complete."""

import inspect
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import wcdas
from wcdas.heads import HEADS
from wcdas.losses import LOSSES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PYTHON_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages_with_examples() -> list[str]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    return [
        str(page.relative_to(ROOT))
        for page in pages
        if page.exists() and PYTHON_BLOCK.search(page.read_text(encoding="utf-8"))
    ]


@pytest.fixture
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("an example of the documentation opens a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def _methods_as_before() -> Iterator[None]:
    before = dict(wcdas.METHODS)
    yield
    wcdas.METHODS.clear()
    wcdas.METHODS.update(before)


@pytest.mark.usefixtures("_no_network", "_methods_as_before")
@pytest.mark.parametrize("page", pages_with_examples())
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__example__"}
    for block in PYTHON_BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start(1))  # a traceback shows the page's line
        code = compile("\n" * lines_before + block[1], str(ROOT / page), "exec")
        exec(code, names)


@pytest.mark.parametrize(
    ("kind", "name", "cls"),
    [("heads", name, cls) for name, cls in HEADS.items()]
    + [("losses", name, cls) for name, cls in LOSSES.items()],
)
def test_every_class_has_a_page_with_its_parameters(kind: str, name: str, cls: type) -> None:
    page = (DOCS / kind / f"{name}.md").read_text(encoding="utf-8")
    assert f"`wcdas.{cls.__name__}`" in page
    for parameter in inspect.signature(cls).parameters.values():
        row = re.search(rf"^\| `{parameter.name}` \| (.*?) \|", page, re.MULTILINE)
        assert row, f"{parameter.name} is not in the table of {kind}/{name}.md"
        required = parameter.default is inspect.Parameter.empty
        default = "required" if required else f"`{parameter.default!r}`".replace("'", '"')
        assert row[1] == default


@pytest.mark.parametrize("kind", ["heads", "losses"])
def test_index_lists_every_name(kind: str) -> None:
    names = wcdas.list_heads() if kind == "heads" else wcdas.list_losses()
    index = (DOCS / kind / "index.md").read_text(encoding="utf-8")
    assert all(f"[`{name}`]({name}.md)" in index for name in names)


def second_derivative() -> None:
    head = wcdas.WCDASHead(4, 2000)
    loss = head.loss(torch.randn(2, 4), torch.arange(2))
    (grad,) = torch.autograd.grad(loss, head.weight, create_graph=True)
    torch.autograd.grad(grad.sum(), head.weight)


HEAD = wcdas.WCDASHead(64, 100)
X, Y = torch.ones(8, 64), torch.arange(8)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: HEAD(torch.randn(8, 512, 2, 2)),
        lambda: HEAD.loss(X, Y + 100),
        lambda: HEAD.loss(X, Y.float()),
        lambda: HEAD.loss(X, F.one_hot(Y, 100)),
        lambda: HEAD(X * float("nan")),
        lambda: wcdas.create_head("arc_face", 64, 100),
        lambda: wcdas.create_head("wcdas", 64, 100, initial=1.0),
        lambda: wcdas.WCDASHead(64, 100, scale=30.0, scale_init=10.0),
        lambda: wcdas.create_loss("ldam"),
        lambda: wcdas.create_loss("ldam", class_counts=[3, 0, 1]),
        second_derivative,
    ],
)
def test_error_messages_are_the_real_ones(mistake: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, TypeError, NotImplementedError)) as caught:
        mistake()
    page = (DOCS / "use-a-head.md").read_text(encoding="utf-8")
    assert f"\n{caught.type.__name__}: {caught.value}\n" in page

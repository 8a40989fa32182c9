"""The documentation is complete, and its error messages are the real ones."""

import inspect
import re
from collections.abc import Callable
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

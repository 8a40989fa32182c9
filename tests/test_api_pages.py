"""The API pages show every public name, and every one of them has a docstring."""

import importlib
import inspect
import re
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "api"
SHOWN = {
    name
    for page in PAGES.glob("*.md")
    for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
}
MODULES = ["wcdas"] + [
    f"wcdas.{name}" for name in ("circular", "heads", "losses", "evaluation", "deploy")
]
# Helpers of the package itself, or what a page describes in words.
APART = {"wcdas.METHODS", "wcdas.circular", "wcdas.heads", "wcdas.losses", "wcdas.losses.LOSSES"}


def public() -> list[str]:
    names = [f"{m}.{name}" for m in MODULES for name in importlib.import_module(m).__all__]
    return [name for name in names if name not in APART]


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", public())
def test_every_public_name_is_on_a_page(name: str) -> None:
    thing = named(name)
    assert any(named(shown) is thing for shown in SHOWN), f"{name} is on no page of docs/api"


def members(cls: type) -> list[str]:
    """The public methods and properties that a class itself defines."""
    kinds = (FunctionType, property, cached_property, classmethod, staticmethod)
    return [k for k, v in vars(cls).items() if isinstance(v, kinds) and not k.startswith("_")]


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_everything_shown_has_a_docstring(name: str) -> None:
    thing = named(name)
    assert thing.__doc__
    assert not thing.__doc__.startswith(f"{thing.__name__}(")  # that of a bare dataclass
    if inspect.isclass(thing):
        silent = [member for member in members(thing) if not inspect.getdoc(getattr(thing, member))]
        assert not silent

"""The pages on training say what the code does."""

import re
from pathlib import Path

import wcdas
from wcdas.data import OPTIONS
from wcdas.run.recipes import list_recipes
from wcdas.run.settings import DEFAULT_METHOD
from wcdas.run.spec import Config, Stage, keys

DOCS = Path(__file__).parents[1] / "docs"
ROW = re.compile(r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) ?\|$", re.MULTILINE)


def written(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return str(list(default))
    return str(default) or '""'


def described(kind: type) -> dict[str, tuple[str, str]]:
    """The keys of a schema, with defaults and meaning as the page writes them."""
    found = {}
    for name, item in keys(kind).items():
        default = item.default_factory() if callable(item.default_factory) else item.default
        if "text" in item.metadata:
            found[name] = (f"`{written(default)}`", item.metadata["text"])
    return found


def table(heading: str) -> dict[str, tuple[str, str]]:
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    return {name: (default, text) for name, default, text in ROW.findall(section)}


def test_keys_of_a_stage():
    assert table("Keys of a stage") == described(Stage)


def test_keys_of_a_run():
    page = table("Keys of a run")
    assert page.pop("method")[0] == f"`{DEFAULT_METHOD}`"
    assert page.pop("head.name")[0] == "the method's"
    assert page == described(Config)


def test_every_shipped_recipe_is_described():
    page = (DOCS / "recipes.md").read_text(encoding="utf-8").split("## Shipped recipes")[1]
    assert all(f"`{name}`" in page for name in list_recipes())


def test_every_dataset_and_option_is_described():
    page = (DOCS / "data.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in wcdas.list_datasets())
    assert all(f"| `data.{name}` |" in page for name in OPTIONS)


def test_every_method_and_option_is_described():
    page = (DOCS / "methods.md").read_text(encoding="utf-8")
    for name, method in wcdas.METHODS.items():
        assert f"`{name}`" in page
        row = re.search(rf"^\| `{name}` \| (.*=.*) \|$", page, re.MULTILINE)
        if method.options and not name.endswith("-wcdas"):
            assert row
            assert row[1] == ", ".join(f"`{key}` = {v}" for key, v in method.options.items())

"""The pages on training say what the code does."""

import dataclasses
import re
from pathlib import Path

import wcdas
from wcdas.data import OPTIONS
from wcdas.run.recipes import list_recipes
from wcdas.run.settings import DEFAULT_METHOD
from wcdas.run.spec import (
    Annealing,
    AugmentConfig,
    BackboneConfig,
    CalibrationConfig,
    Config,
    NeckConfig,
    SelectionConfig,
    Stage,
)

DOCS = Path(__file__).parents[1] / "docs"
ROW = re.compile(r"^\| `([a-z_.]+)` \| `?(.*?)`? \|", re.MULTILINE)


def written(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return str(list(default))
    return str(default) or '""'


def keys(kind: type, prefix: str = "") -> dict[str, str]:
    """The keys of a dataclass and their defaults as the page writes them."""
    found = {}
    for item in dataclasses.fields(kind):
        default = item.default
        if default is dataclasses.MISSING and item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        found[f"{prefix}{item.name}"] = written(default)
    return found


def table(heading: str) -> dict[str, str]:
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    return dict(ROW.findall(section))


def test_keys_of_a_stage():
    plain = keys(Stage)
    del plain["annealing"]
    assert table("Keys of a stage") == plain | keys(Annealing, "annealing.")


def test_keys_of_a_run():
    plain = keys(Config)
    for name in ("method", "stages", "head", "data", "backbone", "neck", "augment"):
        del plain[name]
    del plain["calibration"], plain["selection"]
    nested = (
        keys(BackboneConfig, "backbone.")
        | keys(NeckConfig, "neck.")
        | keys(AugmentConfig, "augment.")
        | keys(CalibrationConfig, "calibration.")
        | keys(SelectionConfig, "selection.")
    )
    assert table("Keys of a run") == plain | nested | {
        "method": DEFAULT_METHOD,
        "head.name": "the method's",
    }


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

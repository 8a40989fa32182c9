"""Recipes in TOML, shipped or of one's own, and single settings `key=value` as users write them."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from wcdas.errors import InputError, explained, unknown
from wcdas.files import read_text
from wcdas.methods import METHODS
from wcdas.run.spec import Config, Table, tables

RECIPES = resources.files("wcdas") / "recipes"
TABLES = (*tables(Config), "methods", "info")

Settings = Mapping[str, Any] | Sequence[str] | None


def list_recipes() -> list[str]:
    """Return the names of the shipped recipes."""
    files = [file.name for file in RECIPES.iterdir()]
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def read_recipe(name: str | Path) -> Table:
    """Read a shipped recipe by name, or one's own by file."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        with explained(f"recipe {name} cannot be read as TOML: "):
            text = read_text(path)
    elif str(name) in list_recipes():
        text = _shipped(str(name))
    else:
        raise InputError(f"{unknown('recipe', str(name), list_recipes())}; or give a TOML file")
    with explained(f"recipe {name} is not valid TOML: ", ValueError, RecursionError):
        table = tomllib.loads(text)
    return check_layer(table)


def read_recipe_header(name: str) -> str:
    """Read the first lines of a shipped recipe: its command and what it is."""
    lines = _shipped(name).splitlines()
    return "  ".join(line.removeprefix("#").strip() for line in lines if line[:1] == "#")


def read_settings(settings: Settings) -> Table:
    """Read single settings: {"epochs": 50} or ["epochs=50"]."""
    if settings is None or isinstance(settings, Mapping):
        return parse_settings([f"{key}={_as_toml(v)}" for key, v in (settings or {}).items()])
    given = [settings] if isinstance(settings, str) else settings
    if not isinstance(given, Sequence) or not all(isinstance(line, str) for line in given):
        raise InputError(f"settings are {settings!r}; expected {{'epochs': 50}} or ['epochs=50']")
    return parse_settings(given)


def parse_settings(settings: Sequence[str]) -> Table:
    """Parse `key=value` settings; a value is TOML, or a text where it is not."""
    table: Table = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise InputError(f"--set got {setting!r}; expected key=value, such as epochs=50")
        *parents, leaf = key.strip().split(".")
        inner = table
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise InputError(f"--set got {key!r}, but {parent!r} has a value already")
        inner[leaf] = _value(text.strip())
    return check_layer(table)


def data_settings(settings: Settings) -> Table:
    """Read the options of a dataset from settings that may hold nothing else."""
    table = read_settings(settings)
    for key in table:
        if key != "data":
            raise InputError(f"--set got {key!r}; expected data.… here, such as data.root=DIR")
    return dict(table.get("data", {}))


def _shipped(name: str) -> str:
    return RECIPES.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def check_layer(layer: Table, prefix: str = "") -> Table:
    """Refuse a layer whose tables are none: layers are laid over each other key by key."""
    inner = {key: layer[key] for key in TABLES if key in layer}
    for key in ("stages", "methods"):
        if isinstance(layer.get(key), dict):
            inner |= {f"{key}.{name}": table for name, table in layer[key].items()}
    for key, value in inner.items():
        path = prefix + key
        if not isinstance(value, dict):
            raise InputError(f"{path} is {value!r}; expected a table; set a key in it, {path}.KEY")
        if key.startswith("methods."):
            name = key.removeprefix("methods.")
            if name not in METHODS:
                raise InputError(f"{path}: {unknown('method', name, METHODS)}")
            check_layer(value, f"{path}.")
    return layer


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, Path)):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k} = {_as_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_toml, value))}]"
    return str(value)

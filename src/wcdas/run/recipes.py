"""Recipes: a run's configuration from the method, the shipped recipe, a file and single settings.

Later wins: method defaults, the shipped recipe of the dataset, `--recipe`, `--set`. A dataset's
recipe speaks of stages by name; a method takes what concerns the stages it has, so that all methods
train under one protocol. What a method needs otherwise stands in the recipe's table `methods.NAME`.
"""

import copy
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from wcdas.errors import InputError, explained, unknown
from wcdas.methods import METHODS, find_method
from wcdas.run.automatic import FINE_TUNING
from wcdas.run.schedule import planned
from wcdas.run.spec import Config, build

EVERY_STAGE = ("epochs", "lr", "batch_size", "weight_decay")  # bare keys that set all stages
TABLES = (
    "data",
    "backbone",
    "neck",
    "head",
    "augment",
    "calibration",
    "selection",
    "options",
    "stages",
    "methods",
    "info",
)

Table = dict[str, Any]

RECIPES = resources.files("wcdas") / "recipes"


def list_recipes() -> list[str]:
    """The names of the shipped recipes."""
    files = RECIPES.iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_recipe(name: str | Path) -> Table:
    """A shipped recipe by name, or one's own by file."""
    path = Path(name)
    if path.is_file():
        where = f"recipe {name} cannot be read as TOML: "
        with explained(where, OSError, UnicodeDecodeError):
            text = path.read_text(encoding="utf-8")
    elif str(name) in list_recipes():
        text = RECIPES.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise InputError(f"{unknown('recipe', str(name), list_recipes())}; or give a TOML file")
    with explained(f"recipe {name} is not valid TOML: ", tomllib.TOMLDecodeError):
        return _checked(tomllib.loads(text))


def read_recipe_header(name: str) -> str:
    """The first lines of a shipped recipe: its command and what it is."""
    text = RECIPES.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    lines = [line.removeprefix("#").strip() for line in text.splitlines() if line[:1] == "#"]
    return "  ".join(lines)


def parse_settings(settings: Sequence[str]) -> Table:
    """The table of `key=value` settings; a value is TOML, or a text where it is not."""
    table: Table = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise InputError(f"--set got {setting!r}; expected key=value, such as epochs=50")
        *parents, leaf = key.strip().split(".")
        place = table
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise InputError(f"--set got {key!r}, but {parent!r} has a value already")
        place[leaf] = _value(text.strip())
    return _checked(table)


def resolve(
    method: str, dataset: str, given: Sequence[Table], automatic: Table, seed: int | None
) -> Config:
    """The configuration of a run from its layers.

    Args:
        method: a name of `list_methods()`.
        dataset: its name; there may be a shipped recipe for it.
        given: own recipes, which may add stages, and last the single settings, which may not.
        automatic: what suits data and machine.
        seed: over whatever the layers say.
    """
    hooks = find_method(method)
    table: Table = {"options": dict(hooks.options)} | copy.deepcopy(dict(hooks.defaults))
    shipped = read_recipe(dataset) if dataset in list_recipes() else {}
    own = shipped.pop("methods", {}).get(method, {})
    layers = [automatic, shipped, own]
    if shipped and any(layer.get("backbone", {}).get("weights") for layer in given):
        layers.append(FINE_TUNING)  # shipped recipes train from scratch
    for layer in layers:
        _drop_options_of_another(table, layer)
        _merge(table, _for_stages(_spread(layer, table["stages"]), table["stages"]))
    *recipes, settings = given
    for layer in recipes:
        _drop_options_of_another(table, layer)
        _merge(table, _spread(layer, table["stages"]))
    for name in settings.get("stages", {}):
        if name not in table["stages"]:
            raise unknown(f"stage of {method}", name, table["stages"])
    _drop_options_of_another(table, settings)
    _merge(table, _spread(settings, table["stages"]))
    _check_options(table["options"], hooks.options, method)
    if seed is not None:
        table["seed"] = seed
    config = build({"method": method, "data": {}} | table)
    planned(config.stages)  # refuses stages without epochs
    return config


def _drop_options_of_another(table: Table, layer: Table) -> None:
    """Where a layer names another head or neck, the options so far were not meant for it."""
    for part in ("head", "neck"):
        name = layer.get(part, {}).get("name")
        if name is not None and name != table.get(part, {}).get("name"):
            table[part] = {}


def _check_options(given: Table, known: Mapping[str, Any], method: str) -> None:
    for name, value in given.items():
        if name not in known:
            if not known:
                raise InputError(f"options.{name} is given, but {method} has none; leave it out")
            raise unknown(f"option of {method}", name, known)
        if type(value) in (int, float) and not 0 <= value < math.inf:
            raise InputError(f"options.{name} is {value}; expected a number of at least 0")
        kind = type(known[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(f"options.{name} is {value!r}; expected a value like {known[name]!r}")


def _merge(table: Table, layer: Mapping[str, Any]) -> None:
    """Lay a layer over a table, key by key."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = copy.deepcopy(value)


def _spread(layer: Mapping[str, Any], stages: Iterable[str]) -> Table:
    """A layer whose bare `epochs`, `lr`, … are those of every stage, unless a stage has its own."""
    result = copy.deepcopy(dict(layer))
    bare = {key: result.pop(key) for key in EVERY_STAGE if key in result}
    if bare:
        own = result.setdefault("stages", {})
        for name in dict.fromkeys([*stages, *own]):
            own[name] = bare | own.get(name, {})
    return result


def _for_stages(layer: Table, names: Iterable[str]) -> Table:
    """A dataset's recipe without the stages that a method does not have."""
    stages = layer.get("stages", {})
    return layer | {"stages": {name: stages[name] for name in names if name in stages}}


def _checked(layer: Table, prefix: str = "") -> Table:
    """A layer whose tables are tables, so that layers can be laid over each other."""
    places = {key: layer[key] for key in TABLES if key in layer}
    for key in ("stages", "methods"):
        if isinstance(layer.get(key), dict):
            places |= {f"{key}.{name}": table for name, table in layer[key].items()}
    for place, value in places.items():
        path = prefix + place
        if not isinstance(value, dict):
            raise InputError(f"{path} is {value!r}; expected a table; set a key in it, {path}.KEY")
        if place.startswith("methods."):
            name = place.removeprefix("methods.")
            if name not in METHODS:
                raise InputError(f"{path}: {unknown('method', name, METHODS)}")
            _checked(value, f"{path}.")
    return layer


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


__all__ = ["list_recipes", "parse_settings", "read_recipe", "read_recipe_header", "resolve"]

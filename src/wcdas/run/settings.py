"""What a user says over the shipped recipes: a recipe of one's own, and single settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from wcdas.data import OPTIONS
from wcdas.errors import InputError, unknown
from wcdas.methods import Method, find_method
from wcdas.run.recipes import EVERY_STAGE, parse_settings, read_recipe
from wcdas.run.spec import Config, as_table, build, flat

DEFAULT_METHOD = "wcdas-prior"

Table = dict[str, Any]
Settings = Mapping[str, Any] | Sequence[str] | None


def read_layers(
    recipe: str | Path | None, settings: Settings, method: str | None
) -> tuple[list[Table], str | None]:
    """The tables given over the shipped recipe, and the method they name; later wins."""
    table, named = read_own(recipe)
    last = parse_settings(as_list(settings))
    method = last.pop("method", method or named)
    if method is not None and not isinstance(method, str):
        raise InputError(f"method is {method!r}; expected a name of `wcdas list methods`")
    return [*for_method(table, method or DEFAULT_METHOD), last], method


def read_own(recipe: str | Path | None) -> tuple[Table, Any]:
    """The contents of a recipe, or of a run's `run.toml`, and the method it names.

    Of a run's `info` there stays what another method needs: `method` and `given`.
    """
    table = read_recipe(recipe) if recipe is not None else {}
    info, method = table.pop("info", {}), table.pop("method", None)
    if "given" in info:
        table["info"] = {"method": method, "given": info["given"]}
    return table, method


def for_method(recipe: Mapping[str, Any], method: str) -> list[Table]:
    """The tables of a recipe: what it says of all methods, and of this one."""
    if "info" in recipe and recipe["info"]["method"] != method:
        return _of_another(recipe, method)
    shared = {key: value for key, value in recipe.items() if key not in ("methods", "info")}
    own = recipe.get("methods", {}).get(method, {})
    return [layer for layer in (shared, own) if layer]


def said(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Table]:
    """What a user set for a run, for its `info.given`: data, seed and method stand elsewhere."""
    before = recipe["info"]["given"] if "info" in recipe else [recipe]
    layers = [_without(layer, "data", "seed") for layer in (*before, settings)]
    return [layer for layer in layers if layer]


def _of_another(run: Mapping[str, Any], method: str) -> list[Table]:
    """What a run of another method says to this one: its data, its seed and what was set for it,
    but for its own head, options and stages."""
    known = find_method(method).defaults["stages"]
    layers = []
    for layer in (part for given in run["info"]["given"] for part in for_method(given, method)):
        shared = _without(layer, "head", "options")
        if "stages" in shared:
            shared["stages"] = {k: v for k, v in shared["stages"].items() if k in known}
        layers.append(shared)
    return [*layers, {key: run[key] for key in ("data", "seed") if key in run}]


def _without(layer: Mapping[str, Any], *keys: str) -> Table:
    return {key: value for key, value in layer.items() if key not in keys}


def check_keys(layers: list[Table], method: str) -> None:
    """Refuse an unknown method or key, bare `epochs` and the like being keys too."""
    hooks = find_method(method)
    known = [item.name for item in fields(Config)] + list(EVERY_STAGE)
    for key in (key for layer in layers for key in layer):
        if key not in known:
            if places := _places(key, hooks):
                raise InputError(f"unknown key {key!r}; did you mean {' or '.join(places[:3])}?")
            raise unknown("key", key, known)


def _places(key: str, method: Method) -> list[str]:
    """The dotted keys whose last part is `key`, among those a run of a method can be given."""
    config = build({"method": "", "data": {}, "options": method.options, **method.defaults})
    paths = [*flat(as_table(config)), *(f"data.{name}" for name in OPTIONS)]
    cut = [f"{path}.".partition(f".{key}.") for path in paths]
    return list(dict.fromkeys(f"'{before}.{key}'" for before, found, _ in cut if found))


def data_options(settings: Settings) -> Table:
    """The options of a dataset from settings that may hold nothing else."""
    table = parse_settings(as_list(settings))
    for key in table:
        if key != "data":
            raise InputError(f"--set got {key!r}; expected data.… here, such as data.root=DIR")
    return data_of([table])


def data_of(layers: list[Table]) -> Table:
    options: Table = {}
    for layer in layers:
        given = layer.get("data", {})
        if not isinstance(given, Mapping):
            raise InputError(f"data is {given!r}; expected data.KEY=VALUE, such as data.root=DIR")
        options |= given
    return options


def as_list(settings: Settings) -> list[str]:
    if settings is None or isinstance(settings, Mapping):
        return [f"{key}={_as_toml(value)}" for key, value in (settings or {}).items()]
    given = [settings] if isinstance(settings, str) else settings
    if not isinstance(given, Sequence) or not all(isinstance(line, str) for line in given):
        raise InputError(f"settings are {settings!r}; expected {{'epochs': 50}} or ['epochs=50']")
    return list(given)


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

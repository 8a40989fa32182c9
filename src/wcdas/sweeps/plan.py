"""The plan of a sweep, methods × seeds under one protocol: a new one, or more of an old one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from wcdas.data import in_memory
from wcdas.errors import InputError, explained, unknown
from wcdas.methods import find_method
from wcdas.run.recipes import Settings
from wcdas.run.settings import (
    Request,
    changes,
    check_effect,
    check_keys,
    check_same,
    for_method,
    full_path,
    read_own,
    read_request,
    remembered,
    short_name,
    with_full_paths,
)
from wcdas.run.spec import Table, flat

SEEDS, MOST_SEEDS = 3, 1_000
NOT_SET = "not set"
OF_A_METHOD = ("stages", "options")  # tables whose keys not every method has


class SweepRun(NamedTuple):
    """One run of a sweep."""

    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method}-s{self.seed}"


@dataclass(frozen=True)
class Plan:
    """Methods, seeds, and what holds for all of them.

    Args:
        methods: names of `list_methods()`.
        seeds: how many; they are 0, 1, 2 …
        data: the source and its options, with full paths.
        recipe: the contents of a recipe; empty without one.
        settings: single values over it.
        skip_bad: leave unreadable images out.
    """

    methods: tuple[str, ...]
    seeds: int
    data: Mapping[str, Any]
    recipe: Mapping[str, Any]
    settings: Mapping[str, Any]
    skip_bad: bool

    @property
    def source(self) -> str:
        return str(self.data["source"])

    @property
    def runs(self) -> list[SweepRun]:
        """All methods with one seed, then with the next, so that methods can be compared early."""
        return [SweepRun(method, seed) for seed in range(self.seeds) for method in self.methods]

    def request(self, method: str) -> Request:
        """Return the request of a method's runs, without what concerns other methods alone."""
        layers = [*for_method(self.recipe, method), self.settings]
        given = remembered(self.recipe, self.settings)
        return Request(method, [self._concerning(method, layer) for layer in layers], given, 0)

    def check(self) -> None:
        """Refuse what is wrong for one of the methods, before any data is read."""
        self._check_names()
        runs = []
        for method in self.methods:
            request = self.request(method)
            check_keys(request.layers, method)
            with explained(f"{method}: ", InputError):
                runs.append((request.check(short_name(self.source)), request.layers))
        check_effect(runs)

    def _check_names(self) -> None:
        """Refuse a stage or an option that none of the methods has; a recipe may add stages."""
        for table in OF_A_METHOD:
            own = {method: _own(method, table) for method in self.methods}
            having = [method for method, names in own.items() if names]
            known = set().union(*own.values())
            of_recipe = {
                name: None
                for method in self.methods
                for layer in for_method(self.recipe, method)
                for name in layer.get(table, {})
            }
            if table == "stages":
                known |= set(of_recipe)
            for name in (*of_recipe, *self.settings.get(table, {})):
                if not known:
                    raise InputError(
                        f"{table}.{name} is given, but none of {', '.join(self.methods)} has "
                        f"{table}; leave it out"
                    )
                if name not in known:
                    kind = f"{table.removesuffix('s')} of {' or '.join(having)}"
                    raise unknown(kind, name, known)

    def _concerning(self, method: str, layer: Mapping[str, Any]) -> Table:
        """A stage or an option that only some methods of the sweep have is left to those."""
        result = dict(layer)
        for table in OF_A_METHOD:
            known = {key for other in self.methods for key in _own(other, table)}
            foreign = known - _own(method, table)
            if isinstance(layer.get(table), Mapping):
                result[table] = {k: v for k, v in layer[table].items() if k not in foreign}
        return result


def _own(method: str, table: str) -> set[str]:
    """The stages or options that a method has by itself."""
    hooks = find_method(method)
    return set(hooks.options if table == "options" else hooks.defaults["stages"])


@dataclass(frozen=True)
class Asked:
    """A user's words on a sweep; None where nothing is said."""

    data: str | Path | None = None
    methods: str | Sequence[str] | None = None
    seeds: int | None = None
    recipe: str | Path | None = None
    settings: Settings = None
    skip_bad: bool = False


def new_plan(asked: Asked) -> Plan:
    recipe, settings, named = _layers(asked)
    methods = _methods(named if asked.methods is None else asked.methods)
    if not methods:
        raise InputError(
            "--methods is missing; expected names of `wcdas list methods`, such as softmax,wcdas"
        )
    seeds = _seeds(asked, SEEDS)
    options = dict(recipe.get("data", {})) | dict(settings.get("data", {}))
    if not isinstance(asked.data, str | Path | None):
        raise InputError(
            f"data is {in_memory(asked.data)}; a sweep needs data that every run can open: save it "
            "with save_to_disk and name the folder"
        )
    source = str(asked.data or options.get("source") or "digits-lt")
    data = options | {"source": full_path(source)}
    return Plan(methods, seeds, data, recipe, settings, asked.skip_bad)


def extended(plan: Plan, asked: Asked) -> Plan:
    """Return the sweep with more methods or seeds; any other change is refused."""
    methods = tuple(dict.fromkeys([*plan.methods, *_methods(asked.methods)]))
    seeds = _seeds(asked, plan.seeds)
    recipe, settings, _ = _layers(asked)
    changed = [
        *changes({"data": plan.source}, {"data": full_path(asked.data or plan.source)}, NOT_SET),
        *changes(flat(plan.settings), flat(settings), NOT_SET),
        *changes({"seeds": plan.seeds}, {"seeds": min(seeds, plan.seeds)}, NOT_SET),
    ]
    if asked.recipe is not None:
        before = flat(plan.recipe)
        changed += changes(before, dict.fromkeys(before) | flat(recipe), NOT_SET)
    remedy = "methods and seeds can be added; for other changes start a new one with another --out"
    check_same("the sweep", changed, remedy)
    skip_bad = plan.skip_bad or asked.skip_bad
    return replace(plan, methods=methods, seeds=seeds, skip_bad=skip_bad)


def _methods(given: Any) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else [] if given is None else given
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise InputError(f"methods are {given!r}; expected names, such as 'softmax,wcdas'")
    names = tuple(name.strip() for name in listed)
    for name in names:
        find_method(name)
        if names.count(name) > 1:
            raise InputError(f"--methods names {name!r} more than once; expected each once")
    return names


def _seeds(asked: Asked, default: int) -> int:
    if asked.seeds is None:
        return default
    if type(asked.seeds) is not int or not 1 <= asked.seeds <= MOST_SEEDS:
        raise InputError(f"--seeds is {asked.seeds}; expected how many, 1 to {MOST_SEEDS:,}")
    return asked.seeds


def _layers(asked: Asked) -> tuple[Table, Table, Any]:
    """The contents of the recipe and the single settings, both with full paths, and the method that
    the recipe names."""
    request = read_request(None, asked.settings, None)
    (settings,) = request.layers
    if request.named is not None:
        raise InputError(f"--set got 'method={request.named}'; a sweep takes --methods instead")
    if "seed" in settings:
        raise InputError(f"--set got 'seed={settings['seed']}'; a sweep takes --seeds instead")
    recipe, named = read_own(asked.recipe)
    recipe.pop("seed", None)  # as --seed wins over a recipe
    return _with_full_paths(recipe), _with_full_paths(settings), named


def _with_full_paths(layer: Table) -> Table:
    return layer | {"data": with_full_paths(layer["data"])} if "data" in layer else layer

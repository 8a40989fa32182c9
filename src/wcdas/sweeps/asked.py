"""From what a user says to the plan of a sweep, new or extended."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wcdas.data import in_memory
from wcdas.errors import InputError
from wcdas.methods import find_method
from wcdas.run.places import place, placed
from wcdas.run.settings import Settings, data_of, read_layers, read_own
from wcdas.run.spec import flat
from wcdas.sweeps.plan import Plan

SEEDS, MOST_SEEDS = 3, 1_000

Table = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a user says of a sweep; None where nothing is said."""

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
    options = data_of([recipe, settings])
    if not isinstance(asked.data, str | Path | None):
        raise InputError(
            f"data is {in_memory(asked.data)}; a sweep needs data that every run can open: save it "
            "with save_to_disk and name the folder"
        )
    source = str(asked.data or options.get("source") or "digits-lt")
    data = options | {"source": place(source)}
    return Plan(methods, seeds, data, recipe, settings, asked.skip_bad)


def extended(plan: Plan, asked: Asked) -> Plan:
    """The same sweep with more methods or seeds; any other change is refused."""
    methods = tuple(dict.fromkeys([*plan.methods, *_methods(asked.methods)]))
    seeds = _seeds(asked, plan.seeds)
    recipe, settings, _ = _layers(asked)
    changes = [
        *_changes({"data": plan.source}, {"data": place(asked.data or plan.source)}),
        *_changes(flat(plan.settings), flat(settings)),
        *_changes({"seeds": plan.seeds}, {"seeds": min(seeds, plan.seeds)}),
    ]
    if asked.recipe is not None:
        before = flat(plan.recipe)
        changes += _changes(before, dict.fromkeys(before) | flat(recipe))
    if changes:
        raise InputError(
            f"the sweep was started otherwise ({'; '.join(changes[:5])}); methods and seeds can "
            "be added; for other changes start a new one with another --out"
        )
    skip_bad = plan.skip_bad or asked.skip_bad
    return replace(plan, methods=methods, seeds=seeds, skip_bad=skip_bad)


def _changes(before: Table, now: Table) -> list[str]:
    return [
        f"{key}: {before.get(key, 'not set')} → {'not set' if value is None else value}"
        for key, value in now.items()
        if before.get(key) != value
    ]


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
    (settings,), method = read_layers(None, asked.settings, None)
    if method is not None:
        raise InputError(f"--set got 'method={method}'; a sweep takes --methods instead")
    if "seed" in settings:
        raise InputError(f"--set got 'seed={settings['seed']}'; a sweep takes --seeds instead")
    recipe, named = read_own(asked.recipe)
    recipe.pop("seed", None)  # as --seed wins over a recipe
    return _placed(recipe), _placed(settings), named


def _placed(layer: Table) -> Table:
    return layer | {"data": placed(data_of([layer]))} if "data" in layer else layer

"""What a sweep consists of: methods × seeds under one protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from wcdas.errors import InputError, explained, unknown
from wcdas.methods import find_method
from wcdas.run.effect import check_effect
from wcdas.run.recipes import resolve
from wcdas.run.settings import check_keys, for_method

OF_A_METHOD = ("stages", "options")  # tables whose keys not every method has

Table = dict[str, Any]


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

    def layers(self, method: str) -> list[Table]:
        """The tables over the shipped recipe, without what concerns other methods alone."""
        given = [*for_method(self.recipe, method), self.settings]
        return [self._concerning(method, layer) for layer in given]

    def check(self) -> None:
        """Refuse what is wrong for one of the methods, before any data is read."""
        self._check_names()
        runs = []
        for method in self.methods:
            layers = self.layers(method)
            check_keys(layers, method)
            with explained(f"{method}: ", InputError):
                runs.append((resolve(method, "", layers, {}, 0), layers))
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

"""What a sweep consists of: methods × seeds under one protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from wcdas.methods import find_method
from wcdas.recipes import resolve
from wcdas.recipes.settings import check_keys

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
        given = [self.recipe, self.settings] if self.recipe else [self.settings]
        return [self._concerning(method, layer) for layer in given]

    def check(self) -> None:
        """Refuse what is wrong for one of the methods, before any data is read."""
        for method in self.methods:
            check_keys(self.layers(method), method)
            resolve(method, "", self.layers(method), {}, 0)

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

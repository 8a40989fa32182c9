"""The sweep behind every cell: data, recipe, seeds and settings, the same for all tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from wcdas.heads import HEADS
from wcdas.heads.concentration import ConcentrationHead
from wcdas.methods import find_method
from wcdas.paper.tables.printed import Part, Row, Settings, read_toml

STAND_IN = "digits-lt"


@dataclass(frozen=True)
class Protocol:
    """What one sweep holds fixed."""

    data: str
    imbalance: float | None
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Of the sweep's folder."""
        factor = "" if self.imbalance is None else f"-{self.imbalance:g}"
        changes = "".join(f",{key.removeprefix('stages.')}={v}" for key, v in self.settings)
        return f"{self.data}{factor}{changes}"

    @property
    def recipe(self) -> str | Path | None:
        """A shipped one, a file beside this one, or None where the dataset's own is meant."""
        named: str | None = _fixed(self.data).get("recipe")
        if named is not None and named.endswith(".toml"):
            return Path(str(resources.files(__package__).joinpath(named)))
        return named

    @property
    def seeds(self) -> int:
        seeds: int = _fixed(self.data)["seeds"]
        return seeds


def protocol(
    method: str, data: str, imbalance: float | None = None, settings: Settings | None = None
) -> Protocol:
    """The protocol of a method on a dataset, with what the paper sets for heads that have a ρ."""
    init = _fixed(data)["init"] if has_concentration(method) else {}
    together = dict(init) | dict(settings or {})
    return Protocol(data, imbalance, tuple(sorted(together.items())))


def of_cell(row: Row, part: Part) -> Protocol:
    return protocol(
        row.method, part.data, part.imbalance, {**dict(part.settings), **dict(row.settings)}
    )


def of_stand_in(row: Row, part: Part) -> Protocol | None:
    """The same on the digits, where they can stand in."""
    if part.digits is None:
        return None
    settings = {**dict(part.digits.settings), **dict(row.settings)}
    return protocol(row.method, STAND_IN, part.digits.imbalance, settings)


def has_concentration(method: str) -> bool:
    head: str = find_method(method).defaults["head"]["name"]
    return issubclass(HEADS[head], ConcentrationHead)


def _fixed(data: str) -> Mapping[str, Any]:
    fixed: dict[str, Any] = read_toml("protocols.toml")[data]
    return fixed

"""What is set for a stage must change something."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wcdas.errors import InputError
from wcdas.methods import find_method
from wcdas.training.config import Config, idle_keys


def check_effect(runs: Iterable[tuple[Config, Sequence[Mapping[str, Any]]]]) -> None:
    """Refuse a key of a stage that has no effect on any of the runs it is given for.

    Args:
        runs: each configuration, and the recipes and settings of a user that it was resolved from.
    """
    reasons: dict[str, list[str | None]] = {}
    for config, layers in runs:
        for layer in layers:
            for name, given in layer.get("stages", {}).items():
                idle = idle_keys(config.stages[name]) | _without_second(config, name)
                for key in given:
                    reasons.setdefault(f"stages.{name}.{key}", []).append(idle.get(key))
    for path, why in reasons.items():
        if all(why):
            raise InputError(f"{path} has no effect, since {why[0]}; leave it out")


def _without_second(config: Config, name: str) -> dict[str, str]:
    """A second batch is for methods that have one by themselves, and for the learned sampler."""
    stage, own = config.stages[name], find_method(config.method).defaults["stages"]
    uses_one = any("second_sampler" in table for table in own.values())
    if uses_one or stage.sampler == "meta" or not stage.second_sampler:
        return {}
    return {"second_sampler": f"{config.method} takes no second batch"}

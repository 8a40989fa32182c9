"""What is set must change something."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wcdas.data.samplers import SAMPLERS
from wcdas.errors import InputError
from wcdas.heads import HEADS
from wcdas.heads.margin import AnnealedMarginHead
from wcdas.methods import find_method
from wcdas.run.spec import Config, Stage, as_table, build, idle_keys

Table = Mapping[str, Any]


def check_effect(runs: Iterable[tuple[Config, Sequence[Table]]]) -> None:
    """Refuse a key of a stage that has no effect on any of the runs it is given for.

    Args:
        runs: each configuration, and the recipes and settings of a user that it was resolved from.
    """
    reasons: dict[str, list[str | None]] = {}
    for config, layers in runs:
        for layer in layers:
            for name, given in layer.get("stages", {}).items():
                idle = (
                    _unread(config, name, given)
                    | idle_keys(config.stages[name])
                    | _without_second(config, name)
                )
                for key in given:
                    reasons.setdefault(f"stages.{name}.{key}", []).append(idle.get(key))
    for path, why in reasons.items():
        if all(why):
            raise _no_effect(path, str(why[0]))


def check_effect_on_features(layers: Iterable[Table]) -> None:
    """Refuse what acts on images alone."""
    for layer in layers:
        acting = {
            "input_size": layer.get("input_size", 0),
            "augment.flip": layer.get("augment", {}).get("flip", False),
        }
        for name, stage in layer.get("stages", {}).items():
            acting[f"stages.{name}.augment"] = stage.get("augment", "none") != "none"
        for path, acts in acting.items():
            if acts:
                raise _no_effect(path, "features are no images")


def _no_effect(path: str, why: str) -> InputError:
    return InputError(f"{path} has no effect, since {why}; leave it out")


def _without_second(config: Config, name: str) -> dict[str, str]:
    """A second batch is for methods that have one by themselves, and for the learned sampler."""
    stage, own = config.stages[name], find_method(config.method).defaults["stages"]
    uses_one = any("second_sampler" in table for table in own.values())
    learned = [name for name, kind in SAMPLERS.items() if kind.learned]
    if uses_one or stage.sampler in learned or not stage.second_sampler:
        return {}
    return {"second_sampler": f"{config.method} takes no second batch"}


def _unread(config: Config, name: str, given: Table) -> dict[str, str]:
    """Keys that a schedule or a head does not read; a run.toml repeats them as the method has
    them, which is no fault."""
    stage, (head, _) = config.stages[name], config.head_after(name)
    reasons: dict[str, str] = {}
    if stage.schedule != "step":
        reasons = dict.fromkeys(("milestones", "gamma"), f"the schedule is {stage.schedule!r}")
    if head in HEADS and not issubclass(HEADS[head], AnnealedMarginHead):
        reasons["annealing"] = f"the head {head!r} has no margin to anneal"
    defaults = build({"method": "", "data": {}, **find_method(config.method).defaults})
    own = as_table(defaults.stages.get(name, Stage()))
    return {key: why for key, why in reasons.items() if key in given and _new(given, own, key)}


def _new(given: Table, own: Table, key: str) -> bool:
    value = given[key]
    before = own.get(key)
    return {**before, **value} != before if isinstance(before, dict) else value != before

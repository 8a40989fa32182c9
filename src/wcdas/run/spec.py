"""What a run is made of, as frozen dataclasses; every key a user may set is a field here.

A `Mapping[str, Any]` is an open table, checked by what it configures.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from wcdas.backbones.necks import check_neck
from wcdas.errors import InputError, explained, unknown

# What a stage takes from the one whose optimizer it continues.
OF_THE_OPTIMIZER = (
    "lr",
    "schedule",
    "warmup",
    "milestones",
    "gamma",
    "momentum",
    "nesterov",
    "weight_decay",
    "concentration_weight_decay",
)


@dataclass(frozen=True)
class Annealing:
    """λ of L-Softmax, SphereFace and ArcFace, base·(1 + gamma·i)^−power, where i goes from 0 to
    `iterations` over the stage, however long it is."""

    base: float = field(default=0.0, metadata={"at_least": 0})  # 0: λ stays as it is
    gamma: float = field(default=0.12, metadata={"at_least": 0})
    power: float = field(default=1.0, metadata={"at_least": 0})
    minimum: float = field(default=0.0, metadata={"at_least": 0})
    iterations: int = field(default=28_000, metadata={"at_least": 1})


@dataclass(frozen=True)
class Stage:
    """One stage of training. `at_least` and `below` in the metadata bound a value."""

    trains: Literal["all", "classifier", "nothing"] = "all"  # nothing: the method sets the values
    head: str = "keep"  # keep, fresh, or a head's name, built from the previous one
    sampler: str = "instance-balanced"
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    second_sampler: str = ""  # of a second batch beside the first, for methods that use one
    loss: str = "cross-entropy"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    prior: float = field(default=0.0, metadata={"at_least": 0})  # times log prior in the loss
    label_smoothing: float = field(default=0.0, metadata={"at_least": 0, "below": 1})
    augment: str = "standard"
    mixup: float = field(default=0.0, metadata={"at_least": 0})
    cutmix: float = field(default=0.0, metadata={"at_least": 0})
    epochs: int = field(default=1, metadata={"at_least": 1})
    batch_size: int = field(default=128, metadata={"at_least": 1})
    accumulate: int = field(default=1, metadata={"at_least": 1})  # parts a batch is cut into
    lr: float = field(default=0.1, metadata={"above": 0})
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    warmup: float = field(default=0.0, metadata={"at_least": 0})  # epochs
    milestones: tuple[float, ...] = (0.8, 0.9)  # of the epochs, for the step schedule
    gamma: float = field(default=0.1, metadata={"above": 0})
    momentum: float = field(default=0.9, metadata={"at_least": 0, "below": 1})
    nesterov: bool = False
    weight_decay: float = field(default=1e-4, metadata={"at_least": 0})
    concentration_weight_decay: float = field(default=-1.0)  # of w_ρ and s; below 0: the same
    clip: float = field(default=0.0, metadata={"at_least": 0})  # of the gradient's norm; 0: none
    ema: float = field(default=0.0, metadata={"at_least": 0, "below": 1})  # decay; 0: none
    # continue: optimizer, decay, rate and schedule of the stage before, over the epochs of both
    optimizer: Literal["fresh", "continue"] = "fresh"
    # of the epochs of the stage before, which this one continues and takes them from; 0: its own
    share: float = field(default=0.0, metadata={"at_least": 0, "below": 1})
    annealing: Annealing = Annealing()


@dataclass(frozen=True)
class BackboneConfig:
    name: str = "resnet32"
    weights: str = ""  # "", "pretrained", or a file


@dataclass(frozen=True)
class NeckConfig:
    name: str = "none"
    features: int = field(default=0, metadata={"at_least": 0})  # of a linear one; 0: as before it


@dataclass(frozen=True)
class AugmentConfig:
    flip: bool = True


@dataclass(frozen=True)
class CalibrationConfig:
    holdout: float = field(default=0.05, metadata={"at_least": 0, "below": 0.5})


@dataclass(frozen=True)
class SelectionConfig:
    """Training images kept out of every stage for what a method chooses, such as τ."""

    holdout: float = field(default=0.0, metadata={"at_least": 0, "below": 0.5})


@dataclass(frozen=True)
class Config:
    """A whole run."""

    method: str
    stages: Mapping[str, Stage]
    head: Mapping[str, Any]
    data: Mapping[str, Any]
    backbone: BackboneConfig = BackboneConfig()
    neck: NeckConfig = NeckConfig()
    augment: AugmentConfig = AugmentConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    selection: SelectionConfig = SelectionConfig()
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method
    seed: int = 0
    input_size: int = field(default=0, metadata={"at_least": 0})  # 0: what suits the data
    amp: Literal["none", "bf16", "fp16"] = "none"
    deterministic: bool = False
    engine: Literal["auto", "eager"] = "auto"  # auto: on a GPU, a step is one CUDA graph
    evaluate_every: int = field(default=0, metadata={"at_least": 0})  # epochs; 0: ten times a stage

    @property
    def head_options(self) -> dict[str, Any]:
        """The options of the run's own head."""
        return {key: value for key, value in self.head.items() if key != "name"}

    def head_after(self, last: str | None) -> tuple[str, bool]:
        """Name the head when the stage `last` has begun, or at the end, and say whether it was
        built from the one before instead of by the run's own options."""
        own = str(self.head.get("name"))
        head, built = own, False
        for name, stage in self.stages.items():
            if stage.head == "fresh":
                head, built = own, False
            elif stage.head != "keep":
                head, built = stage.head, True
            if name == last:
                break
        return head, built


def build(table: Mapping[str, Any]) -> Config:
    """The configuration a nested table describes; unknown keys and bad values are refused."""
    config: Config = _build(Config, _continued(table), "")
    if not config.stages:
        raise InputError("the recipe has no stage; expected at least one [stages.NAME] table")
    _check_continued(config.stages)
    _check_neck(config.neck, config.stages)
    return config


def idle_keys(stage: Stage) -> dict[str, str]:
    """The keys that have no effect on a stage, and why."""
    if stage.trains == "nothing":
        keys = [item.name for item in dataclasses.fields(stage)]
        return dict.fromkeys(
            [key for key in keys if key not in ("trains", "head")], "nothing is trained there"
        )
    idle: dict[str, str] = {}
    if stage.optimizer == "continue":
        idle = dict.fromkeys(OF_THE_OPTIMIZER, "it continues the optimizer of the stage before")
    if stage.share:
        idle["epochs"] = "it takes a share of the epochs of the stage before"
    return idle


def as_table(config: Any) -> dict[str, Any]:
    """The nested table of a configuration, as `build` takes it and TOML writes it."""
    table: dict[str, Any] = {}
    idle = idle_keys(config) if isinstance(config, Stage) else {}
    for item in dataclasses.fields(config):
        if item.name in idle:
            continue
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            value = as_table(value)
        elif isinstance(value, Mapping):
            value = {k: as_table(v) if dataclasses.is_dataclass(v) else v for k, v in value.items()}
        table[item.name] = list(value) if isinstance(value, tuple) else value
    return table


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The dotted paths of a nested table and their values."""
    paths: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            paths |= flat(value, f"{prefix}{key}.")
        else:
            paths[f"{prefix}{key}"] = value
    return paths


def _continued(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stage that continues another has its settings where it does not say otherwise."""
    stages: dict[str, Any] = {}
    previous: Mapping[str, Any] = {}
    for name, stage in _table(table.get("stages", {}), "stages").items():
        given = _table(stage, f"stages.{name}")
        previous = {**previous, **given} if given.get("optimizer") == "continue" else given
        stages[name] = previous
    return {**table, "stages": stages}


def _check_continued(stages: Mapping[str, Stage]) -> None:
    """A stage that continues an optimizer must train the very parameters of the one before."""
    previous: Stage | None = None
    for name, stage in stages.items():
        if stage.share and stage.optimizer == "fresh":
            raise InputError(
                f"stages.{name}.share is {stage.share:g}, but its optimizer is 'fresh'; "
                "expected 'continue', or give it epochs of its own"
            )
        if stage.optimizer == "continue":
            wrong = (
                "there is no stage before it"
                if previous is None
                else f"the stage before it trains {previous.trains!r}, this one {stage.trains!r}"
                if previous.trains != stage.trains
                else f"its head is {stage.head!r}"
                if stage.head != "keep"
                else None
            )
            if wrong:
                raise InputError(
                    f"stages.{name}.optimizer is 'continue', but {wrong}; "
                    "expected the same parameters in the stage before, or 'fresh'"
                )
        previous = stage


def _check_neck(neck: NeckConfig, stages: Mapping[str, Stage]) -> None:
    with explained("neck: "):
        check_neck(neck.name, neck.features)
    if neck.name != "none" and all(stage.trains != "all" for stage in stages.values()):
        raise InputError(
            f"neck.name is {neck.name!r}, but no stage trains it; expected a stage with "
            "trains = 'all', or leave the neck out"
        )


def _build(kind: Any, table: Mapping[str, Any], path: str) -> Any:
    hints = get_type_hints(kind)
    fields = {item.name: item for item in dataclasses.fields(kind)}
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise unknown("key", f"{path}{key}", [f"{path}{name}" for name in fields])
        values[key] = _convert(hints[key], value, f"{path}{key}", fields[key].metadata)
    return kind(**values)


def _convert(hint: Any, value: Any, path: str, bounds: Mapping[str, float]) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(hint, _table(value, path), f"{path}.")
    if get_origin(hint) is Mapping:
        _, of_each = get_args(hint)
        table = _table(value, path)
        if of_each is Any:
            return dict(table)
        return {key: _convert(of_each, v, f"{path}.{key}", bounds) for key, v in table.items()}
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(
                f"{path} is {value!r}; expected {' or '.join(map(repr, get_args(hint)))}"
            )
        return value
    if get_origin(hint) is tuple:
        numbers = isinstance(value, list | tuple) and all(type(v) in (int, float) for v in value)
        if not numbers:
            raise InputError(f"{path} is {value!r}; expected a list of numbers")
        return tuple(float(v) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not hint:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise InputError(f"{path} is {value!r}; expected {names[hint]}")
    if hint is float and not math.isfinite(value):
        raise InputError(f"{path} is {value}; expected a finite number")
    if "at_least" in bounds and not value >= bounds["at_least"]:
        raise InputError(f"{path} is {value}; expected at least {bounds['at_least']:g}")
    if "above" in bounds and not value > bounds["above"]:
        raise InputError(f"{path} is {value}; expected above {bounds['above']:g}")
    if "below" in bounds and not value < bounds["below"]:
        raise InputError(f"{path} is {value}; expected below {bounds['below']:g}")
    return value


def _table(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{path} is {value!r}; expected a table")
    return value

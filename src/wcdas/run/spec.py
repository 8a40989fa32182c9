"""The schema of a run: every key a user may set, with its type, bounds, meaning and effect.

What is refused, what `--set` suggests and what the documentation's tables say all come from here. A
`Mapping[str, Any]` is an open table, checked by what it configures.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from wcdas.backbones.necks import check_neck
from wcdas.data.images import CENTRE
from wcdas.data.samplers import SAMPLERS
from wcdas.errors import InputError, explained, unknown
from wcdas.heads import HEADS
from wcdas.heads.margins import AnnealedMarginHead
from wcdas.losses import LOSSES
from wcdas.methods import find_method

Table = dict[str, Any]  # as TOML has them
Unread = Callable[["Config", str], str | None]

LARGEST_BATCH = 2**20  # more images than a machine holds at a time
FURTHEST = 1e38  # from 0; what float32 can hold
EVERY_STAGE = ("epochs", "lr", "batch_size", "weight_decay")  # bare keys that set all stages


def key(
    default: Any,
    text: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    of_optimizer: bool = False,
    of_images: bool = False,
    unread: Unread | None = None,
) -> Any:
    """Declare a key.

    Args:
        default: its value where nobody says otherwise, or a class to make it from.
        text: what it means, as the documentation says it.
        at_least: the smallest value.
        above: a bound that is no value itself.
        below: the same from the other side.
        at_most: the largest value.
        of_optimizer: a stage that continues an optimizer takes it from the stage before.
        of_images: features have none of it.
        unread: says of a configuration and a stage's name why the key has no effect there.
    """
    metadata = {
        "text": text,
        "at_least": at_least,
        "above": above,
        "below": below,
        "at_most": at_most,
        "of_optimizer": of_optimizer,
        "of_images": of_images,
        "unread": unread,
    }
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _without_step_schedule(config: "Config", name: str) -> str | None:
    schedule = config.stages[name].schedule
    return None if schedule == "step" else f"the schedule is {schedule!r}"


def _without_sgd(config: "Config", name: str) -> str | None:
    algorithm = config.stages[name].algorithm
    return None if algorithm == "sgd" else f"the algorithm is {algorithm!r}"


def _without_backbone(config: "Config", name: str) -> str | None:
    trains = config.stages[name].trains
    if config.frozen:
        return "the backbone is frozen"
    return None if trains == "all" else f"the stage trains {trains!r}, not the backbone"


def _without_annealed_margin(config: "Config", name: str) -> str | None:
    head, _ = config.head_after(name)
    if head not in HEADS or issubclass(HEADS[head], AnnealedMarginHead):
        return None
    return f"the head {head!r} has no margin to anneal"


def _without_second_batch(config: "Config", name: str) -> str | None:
    """A second batch is for methods that have one by themselves, and for the learned sampler."""
    stage, own = config.stages[name], find_method(config.method).defaults["stages"]
    uses_one = any("second_sampler" in table for table in own.values())
    learned = stage.sampler in SAMPLERS and SAMPLERS[stage.sampler].learned
    if uses_one or learned or not stage.second_sampler:
        return None
    return f"{config.method} takes no second batch"


def _without_cutmix(config: "Config", name: str) -> str | None:
    return None if config.stages[name].cutmix else "there is no CutMix"


@dataclass(frozen=True)
class Annealing:
    """λ of L-Softmax, SphereFace and ArcFace, base·(1 + gamma·i)^−power, where i goes from 0 to
    `iterations` over the stage, however long it is."""

    base: float = key(
        0.0,
        "λ of L-Softmax, SphereFace and ArcFace, base·(1 + gamma·i)^−power; 0 leaves λ as it is",
        at_least=0,
    )
    gamma: float = key(0.12, "", at_least=0)
    power: float = key(1.0, "", at_least=0)
    minimum: float = key(0.0, "the smallest λ", at_least=0)
    iterations: int = key(
        28_000, "i goes from 0 to this over the stage, however long it is", at_least=1
    )


@dataclass(frozen=True)
class Stage:
    """One stage of training."""

    trains: Literal["all", "classifier", "nothing"] = key(
        "all",
        "`all`; `classifier`: backbone and neck are frozen, their batch norm too; `nothing`: a "
        "stage without epochs, in which the method sets values",
    )
    head: str = key(
        "keep", "`keep`, `fresh`, or the name of a head that is built from the one before"
    )
    imprint: bool = key(
        False, "whether class weights start from the mean features of their classes"
    )
    sampler: str = key("instance-balanced", "`wcdas list samplers`")
    sampler_options: Mapping[str, Any] = key(
        dict, "of the sampler, such as `per_class` of `class-aware`"
    )
    second_sampler: str = key(
        "",
        "of a second batch beside the first, for methods that use one",
        unread=_without_second_batch,
    )
    loss: str = key("cross-entropy", "`wcdas list losses`")
    loss_options: Mapping[str, Any] = key(dict, "of the [loss](losses/index.md)")
    prior: float = key(
        0.0, "times the log class prior that is added to the logits in the loss", at_least=0
    )
    label_smoothing: float = key(0.0, "from 0 to below 1", at_least=0, below=1)
    augment: str = key("standard", "`wcdas list augmentations`", of_images=True)
    mixup: float = key(0.0, "α of mixup; 0 is none", at_least=0)
    cutmix: float = key(0.0, "α of CutMix; 0 is none", at_least=0)
    cutmix_share: float = key(
        0.0,
        "share of the batches that are for CutMix, the others having mixup or nothing; 0 is all, "
        "half of them beside mixup",
        at_least=0,
        at_most=1,
        unread=_without_cutmix,
    )
    cutmix_sampler: str = key(
        "",
        "of the images that patches come from, such as `class-balanced`; empty: the batch itself",
        unread=_without_cutmix,
    )
    cutmix_rest: int = key(
        0,
        "epochs without CutMix at the beginning of the stage, and as many at its end",
        at_least=0,
        unread=_without_cutmix,
    )
    epochs: int = key(
        1,
        "an epoch is as many draws as there are training images",
        at_least=1,
        at_most=1_000_000,
    )
    batch_size: int = key(128, "of all processes together", at_least=1, at_most=LARGEST_BATCH)
    accumulate: int = key(1, "parts that a batch is cut into, to save memory", at_least=1)
    algorithm: Literal["sgd", "adamw"] = key(
        "sgd", "of the optimizer: `sgd` or `adamw`", of_optimizer=True
    )
    lr: float = key(0.1, "the highest rate", above=0, of_optimizer=True)
    head_lr: float = key(
        1.0, "the rate of head and neck, in multiples of `lr`", above=0, of_optimizer=True
    )
    layer_decay: float = key(
        1.0,
        "what the rate is multiplied with from a layer of the backbone to the one before it, "
        "towards the input; 1 is one rate for all",
        above=0,
        at_most=1,
        of_optimizer=True,
        unread=_without_backbone,
    )
    schedule: Literal["cosine", "step", "constant"] = key(
        "cosine", "`cosine`, `step` or `constant`", of_optimizer=True
    )
    warmup: float = key(0.0, "epochs of linear warm-up", at_least=0, of_optimizer=True)
    milestones: tuple[float, ...] = key(
        (0.8, 0.9),
        "where the step schedule lowers the rate, in shares of the epochs",
        of_optimizer=True,
        unread=_without_step_schedule,
    )
    gamma: float = key(
        0.1,
        "what it multiplies the rate with",
        above=0,
        of_optimizer=True,
        unread=_without_step_schedule,
    )
    momentum: float = key(0.9, "of SGD; β₁ of AdamW", at_least=0, below=1, of_optimizer=True)
    nesterov: bool = key(False, "Nesterov's momentum", of_optimizer=True, unread=_without_sgd)
    weight_decay: float = key(
        1e-4,
        "of all parameters; of AdamW not that of norms and biases",
        at_least=0,
        of_optimizer=True,
    )
    concentration_weight_decay: float = key(
        -1.0, "of w_ρ and s; below 0 it is `weight_decay`", of_optimizer=True
    )
    clip: float = key(0.0, "the largest norm of the gradient; 0 is none", at_least=0)
    sam: float = key(
        0.0,
        "radius ρ of sharpness-aware minimisation, with which a step takes two passes; 0 is none",
        at_least=0,
    )
    ema: float = key(0.0, "decay of a running mean of the weights; 0 is none", at_least=0, below=1)
    optimizer: Literal["fresh", "continue"] = key(
        "fresh",
        "`continue` keeps momentum, rate and schedule of the stage before, and all settings that "
        "are not named anew",
    )
    share: float = key(
        0.0,
        "with `continue`: the share of the epochs of the stage before, 2 or more, that this one "
        "takes over; 0 is epochs of its own",
        at_least=0,
        below=1,
    )
    annealing: Annealing = key(Annealing, "", unread=_without_annealed_margin)


@dataclass(frozen=True)
class BackboneConfig:
    name: str = key("resnet32", "`wcdas list backbones`")
    weights: str = key("", '`""` (from scratch), `pretrained`, or a file')
    drop_path: float = key(
        0.0,
        "rate of stochastic depth at the last layer, for networks of timm that have it",
        at_least=0,
        below=1,
    )
    lora: int = key(
        0,
        "rank of adapters beside the linear layers of a transformer, which learn in place of its "
        "weights; 0 is none",
        at_least=0,
    )


@dataclass(frozen=True)
class NeckConfig:
    name: str = key(
        "none",
        "what stands between the pooled features and the head: `wcdas list necks`; some methods "
        "have one by themselves",
    )
    features: int = key(0, "features that a linear neck gives; 0 is as many as it gets", at_least=0)


@dataclass(frozen=True)
class AugmentConfig:
    flip: bool = key(
        True,
        "mirrored images in training; of one's own images [they decide](data.md#mirrored-images)",
        of_images=True,
    )
    rotation: float = key(
        0.0,
        "largest angle of a random rotation in degrees, by every policy but `none`",
        at_least=0,
        at_most=180,
        of_images=True,
    )
    erase: float = key(
        0.0, "probability of random erasing, by every policy but `none`", at_least=0, of_images=True
    )
    scale: float = key(
        0.08,
        "smallest share of the area that RandomResizedCrop takes, from 112 pixels on",
        above=0,
        of_images=True,
    )


@dataclass(frozen=True)
class CalibrationConfig:
    holdout: float = key(
        0.05,
        "share of the training images kept out of training, to fit the temperature",
        at_least=0,
        below=0.5,
    )


@dataclass(frozen=True)
class SelectionConfig:
    holdout: float = key(
        0.0,
        "share of every class kept out of training, one image at least, for what a method chooses, "
        "such as τ, or learns on",
        at_least=0,
        below=0.5,
    )
    smallest: int = key(2, "classes with fewer images keep them all", at_least=2)
    most: int = key(0, "the most that it takes of a class; 0 is no limit", at_least=0)

    @property
    def bounds(self) -> dict[str, int]:
        """What limits the share."""
        return {"smallest": self.smallest, "most": self.most}


@dataclass(frozen=True)
class Config:
    """A whole run, resolved."""

    method: str
    stages: Mapping[str, Stage]
    head: Mapping[str, Any]
    data: Mapping[str, Any]
    backbone: BackboneConfig = key(BackboneConfig, "")
    neck: NeckConfig = key(NeckConfig, "")
    augment: AugmentConfig = key(AugmentConfig, "")
    calibration: CalibrationConfig = key(CalibrationConfig, "")
    selection: SelectionConfig = key(SelectionConfig, "")
    options: Mapping[str, Any] = key(
        dict, "of the method: `options.NAME`; a method that has none refuses them"
    )
    seed: int = key(0, "of everything random", at_least=0)
    input_size: int = key(
        0, "side of the images in pixels; 0 is what suits the data", at_least=0, of_images=True
    )
    frozen: bool = key(
        False,
        "whether backbone features are computed once and kept, and only what follows is trained",
        of_images=True,
    )
    views: int = key(
        1,
        "with `frozen`: of every training image, the first as at evaluation, the others augmented",
        at_least=1,
    )
    evaluation_size: int = key(
        0,
        "the same in evaluation and prediction; 0 is `input_size`, and a quarter more where a "
        "pretrained network that takes any size is fine-tuned with crops",
        at_least=0,
        of_images=True,
    )
    evaluation_crop: float = key(
        CENTRE,
        "share of the shorter side whose central square is evaluated and predicted, from 112 "
        "pixels on; 1 where a pretrained network sees your own images, unless you say otherwise",
        above=0,
        at_most=1,
        of_images=True,
    )
    teacher: str = key(
        "",
        "a run, or its model file, whose predictions are [learnt from, too]"
        "(train.md#learn-from-a-trained-model)",
    )
    teacher_weight: float = key(0.5, "share of the loss that the teacher has", above=0, at_most=1)
    teacher_temperature: float = key(
        2.0, "that teacher's and own logits are divided by in it", above=0
    )
    sharded: bool = key(
        False,
        "whether each of [several processes](many-classes.md#several-gpus) holds, trains and keeps "
        "a part of the classes; of the head `wcdas`, from 100,000 classes on unless you say "
        "otherwise",
    )
    negatives: float = key(
        1.0,
        "with `sharded`: share of the classes that a step draws beside those of its labels",
        above=0,
        at_most=1,
    )
    amp: Literal["none", "bf16", "fp16"] = key(
        "none",
        "mixed precision: `none`, `bf16`, `fp16`; on a GPU that has it `bf16` unless you say "
        "otherwise; heads and losses stay in float32",
    )
    deterministic: bool = key(False, "the same result twice on a GPU too")
    engine: Literal["auto", "eager"] = key(
        "auto",
        "`auto`: on a GPU every step is one CUDA graph where data and method allow it; `eager`: "
        "never",
    )
    cache: bool = key(
        False,
        "hold the images decoded on the device, training images at 8/7 of the input size; on a GPU "
        "with room for them unless you say otherwise",
        of_images=True,
    )
    evaluate_every: int = key(
        0,
        "epochs between evaluations; 0 is ten times a stage, or less often where test images are "
        "many",
        at_least=0,
    )

    @property
    def evaluated_at(self) -> int:
        """Side of the images in evaluation and prediction."""
        return self.evaluation_size or self.input_size

    @property
    def head_options(self) -> Table:
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

    @property
    def prior(self) -> str:
        """The class prior of its logits, "train" or "uniform", or "none" where there is no such
        reading."""
        return self.prior_in(list(self.stages)[-1])

    def prior_in(self, name: str) -> str:
        """The same while a stage trains: what the method says, or what follows from the stage."""
        method, stage = find_method(self.method), self.stages[name]
        if method.prior != "stage" and (method.prior or method.training_step):
            return method.prior or "none"
        strength = LOSSES[stage.loss].prior_strength(**stage.loss_options)
        if stage.trains == "nothing" or strength is None:
            return "none"
        tau, drawn = strength + stage.prior, SAMPLERS[stage.sampler].prior
        # A little above 1 makes up for rare classes being learnt by heart.
        if drawn == "train" and 1 <= tau <= 1.5:
            return "uniform"
        return drawn if tau == 0 else "none"


def keys(kind: type = Config, prefix: str = "") -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a dataclass and of those in it, by their dotted keys."""
    hints = get_type_hints(kind)
    found: dict[str, dataclasses.Field[Any]] = {}
    for item in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[item.name]):
            found |= keys(hints[item.name], f"{prefix}{item.name}.")
        else:
            found[f"{prefix}{item.name}"] = item
    return found


def tables(kind: type) -> list[str]:
    """Return the names of a dataclass's fields that are tables."""
    hints = get_type_hints(kind).items()
    return [n for n, h in hints if dataclasses.is_dataclass(h) or get_origin(h) is Mapping]


def build(table: Mapping[str, Any]) -> Config:
    """Build the configuration a nested table describes; unknown keys and bad values are refused."""
    config: Config = _build(Config, _continued(table), "")
    if not config.stages:
        raise InputError("the recipe has no stage; expected at least one [stages.NAME] table")
    _check_continued(config.stages)
    _check_backbone(config)
    _check_teacher(config)
    if config.views > 1:
        view_policy(config)
    return config


def view_policy(config: Config) -> str:
    """Return the augmentation of all views but the first of a frozen network's images."""
    if not config.frozen:
        raise InputError(
            f"views is {config.views}, but features are not frozen; add --frozen, or leave it out"
        )
    policies = {stage.augment for stage in config.stages.values() if stage.trains != "nothing"}
    policies -= {"none"}
    if len(policies) != 1:
        named = " and ".join(map(repr, sorted(policies))) or "'none' alone"
        raise InputError(
            f"views is {config.views}, and the stages name the augmentation {named}; expected one "
            "for all views, such as 'standard'"
        )
    return policies.pop()


def idle_keys(stage: Stage) -> dict[str, str]:
    """Return the keys that a stage does not have, and why; they are not written down."""
    fields = dataclasses.fields(stage)
    if stage.trains == "nothing":
        others = [item.name for item in fields if item.name not in ("trains", "head")]
        return dict.fromkeys(others, "nothing is trained there")
    idle: dict[str, str] = {}
    if stage.optimizer == "continue":
        shared = [item.name for item in fields if item.metadata["of_optimizer"]]
        idle = dict.fromkeys(shared, "it continues the optimizer of the stage before")
    if stage.share:
        idle["epochs"] = "it takes a share of the epochs of the stage before"
    return idle


def unread_keys(config: Config, name: str) -> dict[str, str]:
    """Return the keys that have no effect on a stage as it is, and why."""
    rules = {i.name: i.metadata["unread"] for i in dataclasses.fields(Stage)}
    reasons = {item: rule(config, name) for item, rule in rules.items() if rule is not None}
    return {item: reason for item, reason in reasons.items() if reason}


def with_defaults(table: Table) -> Table:
    """Fill in the settings that a run.toml does not have, such as one of an older version; its
    stages stay as they are."""
    full = dict(table)
    for item in dataclasses.fields(Config):
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
            own = as_table(default) if dataclasses.is_dataclass(default) else default
            full[item.name] = own | table.get(item.name, {})
        elif item.default is not dataclasses.MISSING:
            full.setdefault(item.name, item.default)
    return full


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


def _check_backbone(config: Config) -> None:
    """Refuse what acts on a backbone, or a neck, that nothing trains."""
    neck, backbone = config.neck, config.backbone
    with explained("neck: "):
        check_neck(neck.name, neck.features)
    trained = any(stage.trains == "all" for stage in config.stages.values())
    if neck.name != "none" and not trained:
        raise InputError(
            f"neck.name is {neck.name!r}, but no stage trains it; expected a stage with "
            "trains = 'all', or neck.name = 'none'"
        )
    for key, value in {"drop_path": backbone.drop_path, "lora": backbone.lora}.items():
        if value and (config.frozen or not trained):
            why = "it is frozen" if config.frozen else "no stage trains it"
            raise InputError(f"backbone.{key} has no effect, since {why}; leave it out")
    if config.frozen and config.evaluation_size:
        raise InputError(
            f"evaluation_size is {config.evaluation_size}, but frozen features are of one size; "
            "set input_size instead"
        )


def _check_teacher(config: Config) -> None:
    """Refuse what says how to learn from nobody."""
    for name in ("teacher_weight", "teacher_temperature"):
        value = getattr(config, name)
        if value != getattr(Config, name) and not config.teacher:
            raise InputError(f"{name} is {value:g}, but there is no teacher; leave it out")


def _build(kind: Any, table: Mapping[str, Any], path: str) -> Any:
    hints = get_type_hints(kind)
    fields = {item.name: item for item in dataclasses.fields(kind)}
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise unknown("key", f"{path}{key}", [f"{path}{name}" for name in fields])
        values[key] = _convert(hints[key], value, f"{path}{key}", fields[key].metadata)
    return kind(**values)


def _convert(hint: Any, value: Any, path: str, bounds: Mapping[str, Any]) -> Any:
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
        return tuple(_convert(float, v, path, bounds) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(min(max(value, -FURTHEST), FURTHEST))
    if type(value) is not hint:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise InputError(f"{path} is {value!r}; expected {names[hint]}")
    if hint is float and not math.isfinite(value):
        raise InputError(f"{path} is {value}; expected a finite number")
    if hint is float and abs(value) >= FURTHEST:
        raise InputError(f"{path} is {value}; expected a number below {FURTHEST:g} either way")
    tests = {
        "at_least": operator.ge,
        "above": operator.gt,
        "below": operator.lt,
        "at_most": operator.le,
    }
    for name, holds in tests.items():
        bound = bounds.get(name)
        if bound is not None and not holds(value, bound):
            raise InputError(f"{path} is {value}; expected {name.replace('_', ' ')} {bound:g}")
    return value


def _table(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{path} is {value!r}; expected a table")
    return value

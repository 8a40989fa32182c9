"""What the files in a run's folder hold."""

from typing import Any, Literal, NotRequired, TypedDict

Share = float | None  # None where there is nothing to measure

ClassRow = TypedDict(
    "ClassRow",
    {
        "class": Any,
        "train_images": int,
        "test_images": int,
        "accuracy": Share,
        "precision": Share,
        "f1": Share,
        "most_confused_with": Any,
    },
)


class Summary(TypedDict):
    """Of the metrics what sweeps and results keep."""

    headline: Literal["top1", "balanced_accuracy"]
    test_images: int
    never_predicted: int
    many: Share
    medium: Share
    few: Share
    top1: Share
    top5: Share
    balanced_accuracy: Share
    macro_f1: Share
    ece: Share
    nll: Share


class Metrics(Summary):
    """metrics.json: the last epoch."""

    method: str
    dataset: str
    device: NotRequired[str]  # that it ended on
    temperature: float
    held_out: NotRequired[int]  # since format 2
    test_is_balanced: bool
    group_classes: dict[str, int]
    per_class: list[ClassRow]
    confusion: list[list[int]]


class LogLine(TypedDict):
    """A line of log.jsonl: an epoch."""

    stage: str
    epoch: int
    lr: float
    loss: float
    train_accuracy: Share
    angle: dict[str, float]
    seconds: float
    eager: NotRequired[str]  # why a step was no CUDA graph, where it should have been
    rho: NotRequired[dict[str, float]]
    rho_at_bounds: NotRequired[dict[str, float]]
    rho_by_class: NotRequired[list[float]]
    scale: NotRequired[float]
    class_probabilities: NotRequired[list[float]]
    test: NotRequired[dict[str, Share]]
    warnings: NotRequired[dict[str, str]]


class Info(TypedDict):
    """What a run found, beside its settings."""

    fingerprint: str
    prior: str
    class_counts: list[int]
    data: dict[str, Any]
    weights: NotRequired[str]
    teacher: NotRequired[str]  # the digest of its model file
    threads: NotRequired[int]
    given: list[dict[str, Any]]
    versions: dict[str, str]
    code: NotRequired[dict[str, str]]


class Data(TypedDict):
    source: str


class RunTable(TypedDict):
    """run.toml, beside the settings that the schema has."""

    data: Data
    info: Info

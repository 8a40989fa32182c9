"""The numbers of a run that the rules on what to try next look at."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wcdas.deploy.splits import left_out
from wcdas.report.record import Record


@dataclass(frozen=True)
class Confusion:
    true: str
    predicted: str
    images: int
    of: int


@dataclass(frozen=True)
class Facts:
    """Accuracies are shares of 1; None is not measured, or no such class."""

    run: str  # as a shell takes them
    data: str
    method: str
    seed: int
    many: float | None
    medium: float | None
    few: float | None
    headline: float | None
    headline_error: float | None
    few_error: float | None
    prior: str  # of the logits: train, uniform or none
    prior_in_loss: bool
    pretrained: bool
    ece: float | None
    confidence: float | None
    top1: float | None
    holdout: float
    first_stage: str
    last_stage: str
    epochs: int  # of the first stage
    train_accuracy: float | None  # when the first stage ended
    late_fall: float | None  # of the loss in the last tenth of the first stage, as a share
    never_predicted: int
    untested: int
    classes: int
    confusion: Confusion | None
    baseline: Mapping[str, float | None] | None  # many, medium, few and headline

    def train(self, method: str | None = None) -> str:
        """The command that trains the same data again, by this method or another."""
        return f"wcdas train {self.data} --method {method or self.method} --seed {self.seed}"


def facts_of(record: Record, baseline: Record | None) -> Facts:
    run, metrics, measured = record.run, record.metrics, record.measured
    stages = run["stages"]
    first = record.log[0]["stage"] if record.log else ""
    lines = [line for line in record.log if line["stage"] == first]
    return Facts(
        run=shlex.quote(str(record.folder)),
        data=data_arguments(run),
        method=record.method,
        seed=record.seed,
        **{group: metrics[group] for group in ("many", "medium", "few")},
        headline=record.headline,
        headline_error=record.standard_error(),
        few_error=record.standard_error("few"),
        prior=run["info"]["prior"],
        prior_in_loss=any(_has_prior(stage) for stage in stages.values()),
        pretrained=bool(run["backbone"]["weights"]),
        ece=metrics["ece"],
        confidence=measured["confidence"],
        top1=metrics["top1"],
        holdout=run["calibration"]["holdout"],
        first_stage=first,
        last_stage=list(stages)[-1],
        epochs=len(lines),
        train_accuracy=lines[-1].get("train_accuracy") if lines else None,
        late_fall=_late_fall([line["loss"] for line in lines]),
        never_predicted=metrics["never_predicted"],
        untested=record.accuracy.count(None),
        classes=len(record.class_names),
        confusion=_worst(record),
        baseline=None if baseline is None else accuracies(baseline),
    )


def accuracies(record: Record) -> dict[str, float | None]:
    groups = {group: record.metrics[group] for group in ("many", "medium", "few")}
    return groups | {"headline": record.headline}


def data_arguments(run: Mapping[str, Any]) -> str:
    """The data of a run as `wcdas train` takes it."""
    options = [f"data.{key}={value}" for key, value in run["data"].items() if key != "source"]
    given = shlex.quote(str(run["data"]["source"]))
    if left_out(run):
        given += " --skip-bad"
    return f"{given} --set {shlex.join(options)}" if options else given


def again(record: Record) -> str:
    """The command that repeats a run from its settings."""
    bad = " --skip-bad" if left_out(record.run) else ""
    file = shlex.quote(str(record.folder / "run.toml"))
    return f"wcdas train --recipe {file}{bad} --out NEW_FOLDER"


def _has_prior(stage: Mapping[str, Any]) -> bool:
    return bool(stage.get("prior")) or stage.get("loss") in ("balanced-softmax", "logit-adjustment")


def _late_fall(losses: list[float]) -> float | None:
    if len(losses) < 10:
        return None
    before, last = losses[-1 - len(losses) // 10], losses[-1]
    return (before - last) / before if before > 0 else 0.0


def _worst(record: Record) -> Confusion | None:
    pairs = record.measured["confusions"]
    if not pairs:
        return None
    names, worst = record.class_names, pairs[0]
    return Confusion(names[worst["true"]], names[worst["predicted"]], worst["images"], worst["of"])

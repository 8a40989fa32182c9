"""The metrics of a trained model, as it is or corrected after training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wcdas.data import HuggingFace
from wcdas.deploy.aggregation import check_experts, weigh_experts
from wcdas.deploy.model import Model, Source, load
from wcdas.deploy.splits import dataset_for, run_split
from wcdas.errors import InputError
from wcdas.evaluation.metrics import evaluate
from wcdas.evaluation.posthoc import adjust_logits, max_norm
from wcdas.heads import LinearHead, TauNormHead
from wcdas.heads.experts import ExpertsHead
from wcdas.run.folder import RunFolder


@dataclass(frozen=True)
class Correction:
    """What is done to a trained model before it is measured; nothing by default.

    Args:
        prior: "uniform", "train" or a file: the class mix to predict for.
        logit_adjustment: τ of z − τ log π.
        tau_norm: τ of w/‖w‖^τ, for a linear head.
        max_norm: the largest norm of a class's weights, for a linear head.
        temperature: instead of the fitted one.
        aggregate_experts: weigh the experts of a model such as `sade` by how stable predictions
            for the test images are; their labels are not looked at.
    """

    prior: str | None = None
    logit_adjustment: float | None = None
    tau_norm: float | None = None
    max_norm: float | None = None
    temperature: float | None = None
    aggregate_experts: bool = False

    def __post_init__(self) -> None:
        for name in ("logit_adjustment", "tau_norm", "max_norm", "temperature"):
            value = getattr(self, name)
            lowest = "of at least 0" if name in ("logit_adjustment", "tau_norm") else "above 0"
            fits = value is None or (value >= 0 if "least" in lowest else value > 0)
            if not fits or value == float("inf"):
                option = name.replace("_", "-")
                raise InputError(f"{option} is {value}; expected a number {lowest}")
        if self.prior is not None and self.logit_adjustment:
            raise InputError(
                "a prior and logit adjustment correct the same thing; give one of them"
            )


def evaluate_run(
    run: Source,
    data: str | Path | HuggingFace | None = None,
    correction: Correction = Correction(),  # noqa: B008
    *,
    device: str = "auto",
    workers: int = 0,
    skip_bad: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Measure a trained run on its own test set, or on that of another dataset.

    Args:
        run: a run's folder, or its model file.
        data: another dataset than the run's own, with classes that the model knows.
        correction: what to do to the model before.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images; 0 is none.
        skip_bad: leave unreadable images out.
        options: those of `open_dataset`, such as root=DIR.
    """
    model = load(run, device)
    _correct_weights(model, correction)
    _check_logit_adjustment(model, correction)
    if correction.prior is not None:
        model.prior(correction.prior)  # refused before any work
    if correction.aggregate_experts:
        check_experts(model)
    dataset = dataset_for(model, Path(run), data, options, skip_bad)
    learnt: dict[str, Any] = {}
    if correction.aggregate_experts:
        flip = not Path(run).is_dir() or RunFolder(Path(run)).read_run()["augment"]["flip"]
        learnt["expert_weights"] = weigh_experts(model, dataset.test, flip, workers).tolist()
    logits = run_split(model, dataset.test, workers)[1]
    logits = model.calibrated(logits, correction.prior, correction.temperature)
    counts = torch.tensor(model.info.class_counts)
    if correction.logit_adjustment:
        logits = adjust_logits(logits, counts, correction.logit_adjustment)
    metrics = evaluate(logits, dataset.test.labels, counts, model.class_names)
    facts = {
        "method": model.info.method,
        "dataset": dataset.name,
        "temperature": correction.temperature or model.info.temperature,
    }
    return facts | learnt | metrics


def _check_logit_adjustment(model: Model, correction: Correction) -> None:
    """The tail is never corrected twice."""
    if correction.logit_adjustment and model.info.prior == "uniform":
        raise InputError(
            f"the model was trained by {model.info.method} for classes that are equally frequent, "
            "so logit adjustment would correct the tail twice; leave it out"
        )


def _correct_weights(model: Model, correction: Correction) -> None:
    if not (correction.tau_norm or correction.max_norm):
        return
    head = model.classifier.head
    if not isinstance(head, LinearHead):
        kind = "several experts'" if isinstance(head, ExpertsHead) else repr(model.info.head)
        raise InputError(
            f"the model's head is {kind}; τ-normalisation and MaxNorm act on the "
            "norms of a linear head"
        )
    if correction.max_norm:
        with torch.no_grad():
            head.weight.copy_(max_norm(head.weight, correction.max_norm))
    if correction.tau_norm:
        model.classifier.head = TauNormHead.from_linear(head, correction.tau_norm)

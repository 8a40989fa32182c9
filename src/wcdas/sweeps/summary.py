"""What a sweep came to: the runs' metrics, and their mean and spread for each method."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from wcdas.sweeps.plan import Plan, SweepRun

# What is kept of a run's metrics; all else is in its metrics.json.
METRICS = (
    "many",
    "medium",
    "few",
    "top1",
    "top5",
    "balanced_accuracy",
    "macro_f1",
    "ece",
    "nll",
)
FACTS = ("headline", "test_images", "never_predicted", *METRICS)


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the sample standard deviation where there are two values or more.

    Example:
        >>> mean_and_std([0.5, 0.75, 1.0]), mean_and_std([0.5])
        ((0.75, 0.25), (0.5, None))
    """
    return fmean(values), stdev(values) if len(values) > 1 else None


def summarise(
    plan: Plan,
    dataset: str,
    metrics: Mapping[SweepRun, Mapping[str, Any]],
    failures: Mapping[SweepRun, str],
    warnings: Mapping[SweepRun, Sequence[str]],
) -> dict[str, Any]:
    """The contents of results.json: every run, and mean and spread for every method."""
    return {
        "dataset": dataset,
        "seeds": plan.seeds,
        "headline": next((m["headline"] for m in metrics.values()), None),
        "methods": {method: _of_method(method, plan, metrics) for method in plan.methods},
        "runs": {
            run.name: _of_run(run, metrics.get(run), failures.get(run))
            | {"warnings": list(warnings.get(run, []))}
            for run in plan.runs
        },
    }


def _of_method(
    method: str, plan: Plan, metrics: Mapping[SweepRun, Mapping[str, Any]]
) -> dict[str, Any]:
    finished = [metrics[run] for run in plan.runs if run.method == method and run in metrics]
    summary: dict[str, Any] = {"finished": len(finished)}
    for key in METRICS:
        values = [found[key] for found in finished if found[key] is not None]
        mean, std = mean_and_std(values) if values else (None, None)
        summary[key] = {"mean": mean, "std": std}
    return summary


def _of_run(run: SweepRun, metrics: Mapping[str, Any] | None, reason: str | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"method": run.method, "seed": run.seed}
    if metrics is not None:
        return facts | {"state": "finished", "metrics": {key: metrics[key] for key in FACTS}}
    if reason is not None:
        return facts | {"state": "failed", "reason": reason}
    return facts | {"state": "unfinished"}

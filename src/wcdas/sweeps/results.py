"""What a sweep came to: mean and spread for each method, as numbers, text, Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from wcdas.evaluation.difference import CONFIDENCE, Difference, difference
from wcdas.evaluation.table import aligned, markdown_table, percent
from wcdas.groups import GROUPS, IN_WORDS
from wcdas.run.contents import Share, Summary
from wcdas.sweeps.plan import Plan, SweepRun

# What is kept of a run's metrics; all else is in its metrics.json.
FACTS = tuple(Summary.__annotations__)
METRICS = tuple(key for key, kind in Summary.__annotations__.items() if kind == Share)

NOTHING: Mapping[SweepRun, tuple[Tensor, Tensor]] = {}
Results = Mapping[str, Any]


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
    answers: Mapping[SweepRun, tuple[Tensor, Tensor]] = NOTHING,
) -> dict[str, Any]:
    """Return the contents of results.json: every run, mean and spread for every method, and how far
    each is from the best.

    Args:
        plan: the methods and seeds.
        dataset: its name.
        metrics: of the runs that are finished.
        failures: why the others failed, as far as they did.
        warnings: of every run.
        answers: true and predicted classes of the test images, of runs that have them.
    """
    runs: dict[str, Any] = {}
    finished: dict[str, list[Mapping[str, Any]]] = {method: [] for method in plan.methods}
    for run in plan.runs:
        facts: dict[str, Any] = {"method": run.method, "seed": run.seed, "state": "unfinished"}
        if run in metrics:
            kept = {key: metrics[run][key] for key in FACTS}
            facts |= {"state": "finished", "metrics": kept}
            finished[run.method].append(metrics[run])
        elif run in failures:
            facts |= {"state": "failed", "reason": failures[run]}
        runs[run.name] = facts | {"warnings": list(warnings.get(run, []))}
    headline = next((m["headline"] for m in metrics.values()), None)
    methods = {method: _over_seeds(found) for method, found in finished.items()}
    measured = {m: s[headline or "top1"]["mean"] for m, s in methods.items() if s["finished"]}
    best = max(measured, key=lambda method: measured[method] or 0.0, default=None)
    for method, summary in methods.items():
        summary["to_best"] = _to_best(plan.seeds, method, best, answers)
    return {
        "dataset": dataset,
        "seeds": plan.seeds,
        "headline": headline,
        "best": best,
        "methods": methods,
        "runs": runs,
    }


def _to_best(
    seeds: int,
    method: str,
    best: str | None,
    answers: Mapping[SweepRun, tuple[Tensor, Tensor]],
) -> dict[str, float] | None:
    """Compare a method with the best one on the seeds that both have."""
    pairs = [(SweepRun(method, seed), SweepRun(str(best), seed)) for seed in range(seeds)]
    both = [(answers[one], answers[other]) for one, other in pairs if {one, other} <= {*answers}]
    if method == best or not both:
        return None
    labels = both[0][0][0]
    alike = all(answer[0].equal(labels) for pair in both for answer in pair)
    if not alike or len(labels) == 0:
        return None
    ours, theirs = (
        torch.stack([predicted == labels for _, predicted in answer])
        for answer in zip(*both, strict=True)
    )
    return difference(ours, theirs, labels)._asdict()


def _over_seeds(finished: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {"finished": len(finished)}
    for key in METRICS:
        values = [metrics[key] for metrics in finished if metrics[key] is not None]
        mean, std = mean_and_std(values) if values else (None, None)
        summary[key] = {"mean": mean, "std": std}
    return summary


def as_text(results: Results) -> str:
    return "\n".join([_title(results), aligned(_rows(results)), *_remarks(results)])


def as_markdown(results: Results) -> str:
    head, *rows = _rows(results)
    table = markdown_table([head, *([f"`{method}`", *cells] for method, *cells in rows)])
    remarks = "\n".join(f"- {line}" for line in _remarks(results))
    return "\n\n".join(filter(None, [_title(results), table, remarks]))


def as_csv(results: Results) -> str:
    """Return numbers in percent; the cells of a group without classes are empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    cells = {
        f"{name}_{part}": (key, part)
        for name, key in _columns(results).items()
        for part in ("mean", "std")
    }
    compared = ("to_best_mean", "to_best_margin")
    writer.writerow(["method", "seeds", "finished", *cells, *compared, "failed"])
    for method, summary in results["methods"].items():
        values = [summary[key][part] for key, part in cells.values()]
        to_best = summary["to_best"] or {}
        values += [to_best.get("mean"), to_best.get("margin")]
        numbers = ["" if value is None else f"{100 * value:.4f}" for value in values]
        failed = "; ".join(_failed(results, method))
        writer.writerow([method, results["seeds"], summary["finished"], *numbers, failed])
    return file.getvalue().rstrip("\n")


def _title(results: Results) -> str:
    spread = "; mean ± std over seeds" if results["seeds"] > 1 else ""
    return f"{results['dataset']}: accuracy in % by training images, last epoch{spread}"


def _columns(results: Results) -> dict[str, str]:
    """Return the columns and their metrics; "all" is the headline, as in a run's own table."""
    return {group: group for group in GROUPS} | {"all": results["headline"] or "top1"}


def _rows(results: Results) -> list[list[str]]:
    seeds, columns = results["seeds"], _columns(results)
    everything = "all (balanced)" if columns["all"] == "balanced_accuracy" else "all"
    compared = any(summary["to_best"] for summary in results["methods"].values())
    rows = [["method", "seeds", *IN_WORDS.values(), everything, *["to the best"] * compared]]
    for method, summary in results["methods"].items():
        done = summary["finished"]
        count = str(done) if done == seeds else f"{done} of {seeds}"
        cells = [_cell(**summary[key]) for key in columns.values()]
        rows.append([method, count, *cells, *[_distance(results, method)] * compared])
    return rows


def _distance(results: Results, method: str) -> str:
    """How far a method is from the best, and the margin of that."""
    to_best = results["methods"][method]["to_best"]
    if to_best is None:
        return "best" if method == results["best"] else "–"
    return f"{100 * to_best['mean']:+.1f} ± {percent(to_best['margin'])}".replace("-", "−")


def _cell(mean: float | None, std: float | None) -> str:
    return percent(mean) if std is None else f"{percent(mean)} ± {percent(std)}"


def _failed(results: Results, *methods: str) -> list[str]:
    """Return why runs failed, of these methods."""
    return [
        f"{name} failed: {run['reason']}"
        for name, run in results["runs"].items()
        if run["state"] == "failed" and run["method"] in methods
    ]


def _remarks(results: Results) -> list[str]:
    """Return what is said below a table: what cannot be told apart, the runs that failed, and those
    with warnings."""
    warned = [
        f"{name}, warning: {text}"
        for name, run in results["runs"].items()
        for text in run["warnings"]
    ]
    compared = {m: d for m, s in results["methods"].items() if (d := s["to_best"])}
    level = [m for m, d in compared.items() if not Difference(**d).is_clear]
    told = f"not told apart from {results['best']} by these seeds and test images"
    told += f" ({100 * CONFIDENCE:.0f} %): {', '.join(level) or 'none'}"
    return [*[told] * bool(compared), *_failed(results, *results["methods"]), *warned]

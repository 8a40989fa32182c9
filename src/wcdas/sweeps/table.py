"""The table of a sweep as text, Markdown and CSV: a row for each method."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from wcdas.evaluation.table import percent
from wcdas.groups import GROUPS, IN_WORDS

Results = Mapping[str, Any]


def as_text(results: Results) -> str:
    rows = _rows(results)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([_title(results), *lines, *_failed(results), *_warned(results)])


def as_markdown(results: Results) -> str:
    first, *others = [f"| {' | '.join(row)} |" for row in _rows(results)]
    rule = f"| --- |{' ---: |' * (len(GROUPS) + 2)}"
    notes = [f"- {line}" for line in (*_failed(results), *_warned(results))]
    return "\n".join([_title(results), "", first, rule, *others, *([""] if notes else []), *notes])


def as_csv(results: Results) -> str:
    """Numbers in percent; the cells of a group without classes are empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    columns = _columns(results)
    spread = [f"{name}_{part}" for name in columns for part in ("mean", "std")]
    writer.writerow(["method", "seeds", "finished", *spread, "failed"])
    for method, summary in results["methods"].items():
        numbers = [
            _number(summary[key][part]) for key in columns.values() for part in ("mean", "std")
        ]
        failed = "; ".join(_failed(results, method))
        writer.writerow([method, results["seeds"], summary["finished"], *numbers, failed])
    return file.getvalue().rstrip("\n")


def _title(results: Results) -> str:
    spread = "; mean ± std over seeds" if results["seeds"] > 1 else ""
    return f"{results['dataset']}: accuracy in % by training images, last epoch{spread}"


def _rows(results: Results) -> list[list[str]]:
    seeds, columns = results["seeds"], _columns(results)
    everything = "all (balanced)" if columns["all"] == "balanced_accuracy" else "all"
    rows = [["method", "seeds", *IN_WORDS.values(), everything]]
    for method, summary in results["methods"].items():
        done = summary["finished"]
        count = str(done) if done == seeds else f"{done} of {seeds}"
        rows.append([method, count, *(_cell(summary[key]) for key in columns.values())])
    return rows


def _columns(results: Results) -> dict[str, str]:
    """The columns and the metrics they show; "all" is the headline, as in a run's own table."""
    return {group: group for group in GROUPS} | {"all": results["headline"] or "top1"}


def _cell(value: Mapping[str, float | None]) -> str:
    spread = "" if value["std"] is None else f" ± {percent(value['std'])}"
    return percent(value["mean"]) + spread


def _number(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.4f}"


def _failed(results: Results, method: str | None = None) -> list[str]:
    return [
        f"{name} failed: {run['reason']}"
        for name, run in results["runs"].items()
        if run["state"] == "failed" and method in (None, run["method"])
    ]


def _warned(results: Results) -> list[str]:
    return [
        f"{name}, warning: {text}"
        for name, run in results["runs"].items()
        for text in run["warnings"]
    ]

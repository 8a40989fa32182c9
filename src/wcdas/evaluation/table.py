"""Result tables as plain text."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wcdas.evaluation.calibration import FEWEST, was_fitted
from wcdas.groups import IN_WORDS


def percent(value: float | None) -> str:
    """56.7 for 0.567, – for a group without classes."""
    return "–" if value is None else f"{100 * value:.1f}"


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Rows of cells as text, each column as wide as its longest cell; those not `left` are flush
    right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table of Markdown, under the first of them.

    >>> print(markdown_table([["method", "all"], ["wcdas", "48.5"]]))
    | method | all |
    | --- | ---: |
    | wcdas | 48.5 |
    """
    head, *others = rows
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *others))


def result_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Accuracy in percent by group: a column for each named result of `evaluate`.

    "all" is the headline: top-1, or balanced accuracy on an imbalanced test set.

    Example:
        >>> groups = {"many": 0.9, "medium": None, "few": 0.4}
        >>> metrics = groups | {"headline": "top1", "top1": 0.65}
        >>> print(result_table({"linear": metrics, "wcdas": metrics}))
        training images  linear  wcdas
        many (> 100)       90.0   90.0
        medium (20–100)       –      –
        few (< 20)         40.0   40.0
        all                65.0   65.0
    """
    headlines = {metrics["headline"] for metrics in results.values()}
    everything = "all (balanced)" if headlines == {"balanced_accuracy"} else "all"
    groups = [[label, *(percent(m[g]) for m in results.values())] for g, label in IN_WORDS.items()]
    headline = [everything, *(percent(m[m["headline"]]) for m in results.values())]
    return aligned([["training images", *results], *groups, headline])


def class_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for every class, the least accurate first."""
    order = sorted(rows, key=lambda row: (row["accuracy"] is None, row["accuracy"], row["class"]))
    lines = [["class", "train", "test", "accuracy", "most taken for"]]
    for row in order:
        counts = (str(row["train_images"]), str(row["test_images"]))
        confused = row["most_confused_with"]
        lines.append([str(row["class"]), *counts, percent(row["accuracy"]), str(confused or "")])
    return aligned(lines, left={0, 4})


def evaluation_text(metrics: Mapping[str, Any], per_class: bool) -> str:
    """Return what `wcdas evaluate` says of a run."""
    name = metrics["method"]
    lines = [f"{metrics['dataset']}: {metrics['test_images']:,} test samples"]
    if weights := metrics.get("expert_weights"):
        name += ", experts weighed on the test images"
        lines += [f"weights of the experts: {', '.join(f'{w:.2f}' for w in weights)}"]
    lines += [result_table({name: metrics}), metrics_text(metrics)]
    if per_class:
        lines += ["", class_table(metrics["per_class"])]
    return "\n".join(lines)


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """Return the metrics that the table by groups does not show, in two lines."""
    if not metrics["test_images"]:
        return "no test samples"
    temperature, held_out = f"temperature {metrics['temperature']:.2f}", metrics.get("held_out")
    if held_out is not None:
        on = f"{held_out:,} image{'s' * (held_out != 1)}"
        if was_fitted(held_out, metrics["temperature"]):
            temperature = f"{temperature}, fitted on {on}"
        else:
            few = f": {on} held out, fewer than {FEWEST}" if held_out else ""
            temperature = f"no temperature fitted{few}"
    top5 = f"top-5 {percent(metrics['top5'])}, " if len(metrics["per_class"]) > 5 else ""
    return (
        f"top-1 {percent(metrics['top1'])}, {top5}balanced "
        f"{percent(metrics['balanced_accuracy'])}, macro F1 {percent(metrics['macro_f1'])}\n"
        f"calibration error {percent(metrics['ece'])} ({temperature}), "
        f"classes never predicted {metrics['never_predicted']}"
    )

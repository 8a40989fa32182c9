"""The page of one run."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import tomli_w

from wcdas.evaluation.table import percent
from wcdas.groups import FEW
from wcdas.report.advice import advise
from wcdas.report.chart import Chart
from wcdas.report.charts import counted
from wcdas.report.classes import page_data, run_columns
from wcdas.report.document import write_document
from wcdas.report.facts import MEASURED, again, facts_of, in_memory
from wcdas.report.html import chart_figure, class_table, command, paragraph, section
from wcdas.report.record import Record, neck_of
from wcdas.report.results import explained, results_table
from wcdas.report.settings import beside_told

PIXELATED = "data:image/png"  # small pictures are PNG, and shown with their pixels


def write_page(
    path: Path, record: Record, baseline: Record | None, charts: dict[str, Chart]
) -> None:
    """report.html of one run, beside its linear softmax baseline if there is one."""
    parts = {
        "result": ("Result", _result(record, baseline)),
        "next": ("What to try next", _next(record, baseline)),
        "classes": ("Classes", _classes(charts)),
        "rho": ("Concentration", _rho(record, charts)),
        "angles": ("Angles", _angles(charts)),
        "training": ("Training", _training(charts)),
        "confusions": ("Confusions", _confusions(record)),
        "reliability": ("Reliability", _reliability(record, charts)),
        "map": ("Map", _map(charts)),
        "tail": ("The tail", _tail(record, charts)),
        "reproduce": ("Reproduce", _reproduce(record)),
    }
    sections = {
        name: (title, section(name, title, list(body))) for name, (title, body) in parts.items()
    }
    write_document(
        path,
        f"{record.data} · {record.method}",
        _introduction(record),
        sections,
        charts.values(),
        page_data(record, run_columns(record), "training images"),
        record.warnings,
    )


def _introduction(record: Record) -> str:
    run, tail = record.run, record.tail
    stages = " → ".join(run["stages"])
    name = neck_of(run)["name"]
    neck = f"neck {name} and " if name != "none" else ""
    return (
        f"{run['backbone']['name']} with {neck}head {run['head']['name']}, stages {stages}, seed "
        f"{record.seed}; {counted(tail.classes, 'class', 'classes')}, {tail.images:,} training and "
        f"{record.metrics['test_images']:,} test samples. All numbers are of the last epoch."
    )


def _result(record: Record, baseline: Record | None) -> Iterator[str]:
    if baseline is None:
        yield results_table([record], [record.method], 0)
        if record.method != "softmax":
            yield paragraph(
                "No finished softmax run on the same data, with the same backbone and a report, "
                "stands beside it.",
                "soft",
            )
    else:
        yield results_table([baseline, record], ["softmax (linear)", record.method], 0)
        named = f"The baseline is {baseline.folder.name}, seed {baseline.seed}."
        yield paragraph(f"{named} {beside_told(record, baseline)}", "soft")
    yield explained(record)


def _next(record: Record, baseline: Record | None) -> Iterator[str]:
    found = advise(facts_of(record, baseline))
    if not found:
        yield paragraph(f"{_nothing(record)} Compare methods over seeds with wcdas sweep.")
        return
    yield '<ol class="next">'
    for advice in found:
        why = paragraph(advice.why.replace(" %", "\N{NO-BREAK SPACE}%"))
        yield f"<li><p><strong>{escape(advice.what)}</strong></p>{why}"
        yield command(advice.command) if advice.command and not in_memory(record) else ""
        yield "</li>"
    yield "</ol>"


def _nothing(record: Record) -> str:
    tested = zip(record.accuracy, record.class_names, record.test_counts, strict=True)
    measured = [(a, name) for a, name, n in tested if a is not None and n >= MEASURED]
    if not measured:
        return "Nothing stands out."
    accuracy, name = min(measured)
    return f"Nothing stands out: the lowest class, {name}, is at {percent(accuracy)} %."


def _classes(charts: dict[str, Chart]) -> Iterator[str]:
    yield chart_figure(charts["accuracy"])
    yield class_table("classes", "Every class")


def _rho(record: Record, charts: dict[str, Chart]) -> Iterator[str]:
    if "rho" not in charts:
        name = record.run["head"]["name"]
        yield paragraph(f"The head {name} has no concentration ρ; wcdas and wndas have one.")
        return
    yield paragraph(
        "ρ says how closely the features of a class gather around its weight: near 1 tightly, "
        "near 0 not at all.",
        "soft",
    )
    yield chart_figure(charts["rho"])


def _angles(charts: dict[str, Chart]) -> Iterator[str]:
    if "angles" not in charts:
        yield paragraph("This head has no single weight a class, so there are no angles to show.")
        return
    yield paragraph(
        "A test sample is recognised by direction where the angle to its own class is smaller than "
        "that to every other. The further apart the solid and the dashed lines, the better.",
        "soft",
    )
    yield chart_figure(charts["angles"])


def _training(charts: dict[str, Chart]) -> Iterator[str]:
    shown = [charts[name] for name in ("learning", "loss", "rho-training") if name in charts]
    if not shown:
        yield paragraph("No epoch was logged.")
    for chart in shown:
        yield chart_figure(chart)


def _confusions(record: Record) -> Iterator[str]:
    pairs = record.measured["confusions"]
    if not pairs:
        yield paragraph("No test sample was taken for another class.")
        return
    yield paragraph(
        "By the points of balanced accuracy they cost: n of the test images of one of C classes "
        "taken for another cost 100·n/(images of the class·C). The surest mistakes are shown with "
        "how sure the model was, and right of the line a sample of the class they were taken for.",
        "soft",
    )
    yield '<ol class="pairs">'
    for pair in pairs:
        yield from _pair(pair, record.class_names)
    yield "</ol>"


def _pair(pair: dict[str, Any], names: list[str]) -> Iterator[str]:
    true, other = escape(names[pair["true"]]), escape(names[pair["predicted"]])
    yield f"<li><h3>{true} → {other}</h3>"
    cost = f"{pair['cost']:.2g}"
    points = f"{cost} point{'s' * (cost != '1')}"
    yield paragraph(f"{pair['images']:,} of {pair['of']:,}, {points}", "soft")
    shown = [e for e in pair["examples"] if e["picture"]]
    if shown:
        yield '<div class="pictures">'
        for example in shown:
            words = f"{names[pair['true']]} taken for {names[pair['predicted']]}: {example['name']}"
            yield _picture(example, words, f"{100 * example['confidence']:.0f} %")
        rightly = pair["rightly"]
        if rightly and rightly["picture"]:
            words = f"for comparison, {names[pair['predicted']]}: {rightly['name']}"
            yield _picture(rightly, words, names[pair["predicted"]], "rightly")
        yield "</div>"
    else:
        samples = ", ".join(e["name"] for e in pair["examples"])
        yield paragraph(f"Samples: {samples}", "soft")
    yield "</li>"


def _picture(example: dict[str, Any], words: str, caption: str, kind: str = "") -> str:
    small = ' class="small"' if example["picture"].startswith(PIXELATED) else ""
    return (
        f'<figure class="{kind}"><img{small} src="{escape(example["picture"])}" '
        f'alt="{escape(words)}" title="{escape(example["name"])}" loading="lazy">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _reliability(record: Record, charts: dict[str, Chart]) -> Iterator[str]:
    if "reliability" not in charts:
        yield paragraph("There are no test images to measure it on.")
        return
    yield paragraph(temperature_told(record), "soft")
    yield chart_figure(charts["reliability"])


def temperature_told(record: Record) -> str:
    """Whether the probabilities were calibrated, and on what."""
    held_out, value = record.metrics.get("held_out"), f"{record.metrics['temperature']:.2f}"
    if held_out == 0:
        why = (
            f"it takes {FEW} training images of a class to hold one out, and none has so many left"
            if record.run["calibration"]["holdout"]
            else "calibration.holdout is 0"
        )
        return f"Probabilities as training left them: no temperature was fitted, since {why}."
    images = "training images" if held_out is None else counted(held_out, "training image")
    on = f"fitted on {images} held out of the classes with {FEW} or more"
    little = held_out is not None and held_out < FEW
    doubt = " So few do not tell whether they are calibrated." if little else ""
    if value == "1.00":
        return f"Probabilities as training left them: the temperature, {on}, came to 1.{doubt}"
    made = "after" if little else "calibrated by"
    return f"Probabilities {made} a temperature of {value}, {on}.{doubt}"


def _map(charts: dict[str, Chart]) -> Iterator[str]:
    if "map" not in charts:
        yield paragraph("There are too few test samples for a map.")
        return
    yield chart_figure(charts["map"])


def _tail(record: Record, charts: dict[str, Chart]) -> Iterator[str]:
    yield chart_figure(charts["tail"])
    tail = record.tail
    if tail.smallest:
        yield paragraph(
            f"Imbalance {tail.imbalance:.4g}; {counted(tail.many, 'class', 'classes')} with many, "
            f"{tail.medium:,} with a medium number and {tail.few:,} with few training images."
        )


def _reproduce(record: Record) -> Iterator[str]:
    run = record.run
    yield paragraph("The same run again, from its settings:")
    yield command(again(record))
    versions = ", ".join(f"{name} {version}" for name, version in run["info"]["versions"].items())
    yield paragraph(f"{versions}; data fingerprint {run['info']['fingerprint']}", "soft")
    settings = {key: value for key, value in run.items() if key != "info"}
    yield f"<details><summary>All settings</summary>{command(tomli_w.dumps(settings))}</details>"

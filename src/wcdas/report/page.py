"""The page of one run."""

from pathlib import Path

import tomli_w

from wcdas.groups import FEW
from wcdas.heads import HEADS
from wcdas.heads.angular import ConcentrationHead
from wcdas.report.advice import advise
from wcdas.report.baseline import beside_told, find_baseline
from wcdas.report.charts import run_charts
from wcdas.report.document import write_document
from wcdas.report.facts import MEASURED, facts_of
from wcdas.report.record import Record
from wcdas.report.tables import class_table, results


def write_page(path: Path, record: Record, figures: bool) -> None:
    """Write the page of a run, beside its linear softmax baseline if there is one."""
    baseline = find_baseline(record)
    runs = {record.method: record}
    settings = {key: value for key, value in record.run.items() if key != "info"}
    write_document(
        path,
        "run.html",
        run_charts(record),
        {"runs": 1, "classes": record.class_names, "table": class_table(runs)},
        figures,
        title=f"{record.data} · {record.method}",
        warnings=record.warnings,
        record=record,
        baseline=baseline,
        beside="" if baseline is None else beside_told(record, baseline),
        results=results(runs if baseline is None else {"softmax (linear)": baseline} | runs),
        advice=advise(facts_of(record, baseline)),
        lowest=_lowest_class(record),
        heads_with_rho=[
            name for name, head in HEADS.items() if issubclass(head, ConcentrationHead)
        ],
        few=FEW,
        settings=tomli_w.dumps(settings),
    )


def _lowest_class(record: Record) -> tuple[float, str] | None:
    """The accuracy and the name of the worst of the classes that have enough test images."""
    tested = zip(record.accuracy, record.class_names, record.test_counts, strict=True)
    measured = [(a, name) for a, name, n in tested if a is not None and n >= MEASURED]
    return min(measured, default=None)

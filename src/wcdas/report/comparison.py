"""One page that compares several runs."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from wcdas.report.baseline import differing
from wcdas.report.charts import compared_charts
from wcdas.report.document import write_document
from wcdas.report.record import Record
from wcdas.report.tables import class_table, results


def write_comparison(path: Path, records: Sequence[Record], figures: bool) -> None:
    """Write one page about several runs, the first of which the others are compared with."""
    runs = told_apart(records)
    classes = [(record.class_names, record.class_counts) for record in records]
    same_classes = all(one == classes[0] for one in classes)
    settings = {
        key: [(str(value), "") for value in values] for key, values in differing(records).items()
    }
    write_document(
        path,
        "comparison.html",
        compared_charts(runs, same_classes),
        {
            "runs": len(runs),
            "classes": records[0].class_names,
            "table": class_table(runs) if same_classes else None,
        },
        figures,
        title=f"{' · '.join(dict.fromkeys(r.data for r in records))}: {', '.join(runs)}",
        warnings=[f"{name}: {text}" for name, run in runs.items() for text in run.warnings],
        runs=runs,
        results=results(runs),
        same_data=len({record.run["info"]["fingerprint"] for record in records}) == 1,
        same_classes=same_classes,
        settings=settings,
        this_page=f"wcdas report {shlex.join(str(record.folder) for record in records)}",
    )


def told_apart(records: Sequence[Record]) -> dict[str, Record]:
    """Return the runs by method; with seeds, data or folders where these are not enough."""
    candidates = (
        [r.method for r in records],
        [f"{r.method}, seed {r.seed}" for r in records],
        [f"{r.method}, {r.data}" for r in records],
        [r.folder.name for r in records],
        [str(r.folder) for r in records],
    )
    labels = next(labels for labels in candidates if len(set(labels)) == len(labels))
    return dict(zip(labels, records, strict=True))

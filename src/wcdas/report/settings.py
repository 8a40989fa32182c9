"""The settings in which runs differ."""

from collections.abc import Sequence
from typing import Any

from wcdas.report.record import Record, neck_of
from wcdas.run.spec import flat

NONE = "–"  # where a run has no such key
OF_A_METHOD = ("method", "seed", "data", "head", "options", "stages", "info")
MOST = 8


def differing(records: Sequence[Record]) -> dict[str, list[Any]]:
    """The dotted keys whose values are not the same, with that of each run."""
    tables = [_flat(record, records) for record in records]
    keys = dict.fromkeys(key for table in tables for key in table)
    values = {key: [table.get(key, NONE) for table in tables] for key in keys}
    return {key: found for key, found in values.items() if len(set(map(repr, found))) > 1}


def beside_told(record: Record, baseline: Record) -> str:
    """In what a baseline was trained otherwise, in a line, beside what makes the methods differ."""
    shared = [f"stages.{name}." for name in record.run["stages"] if name in baseline.run["stages"]]
    told = [
        f"{key} {str(other) or NONE} instead of {str(own) or NONE}"
        for key, (own, other) in differing([record, baseline]).items()
        if key.startswith(tuple(shared)) or key.partition(".")[0] not in OF_A_METHOD
    ]
    if not told:
        return "But for head and stages of the method it was trained with the same settings."
    more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
    return f"It was trained with other settings: {', '.join(told[:MOST])}{more}."


def _flat(record: Record, records: Sequence[Record]) -> dict[str, Any]:
    """Dotted keys; a stage that not all runs have is one line."""
    run = {key: value for key, value in record.run.items() if key not in ("info", "stages")}
    stages: dict[str, Any] = {}
    for name, stage in record.run["stages"].items():
        if all(name in other.run["stages"] for other in records):
            stages[name] = stage
        else:
            epochs = f"{stage['epochs']} epochs, " if "epochs" in stage else ""
            stages[name] = f"{epochs}trains {stage['trains']}"
    settings = flat(run | {"neck": neck_of(run), "stages": stages})
    return settings | {"info.prior": record.run["info"]["prior"]}

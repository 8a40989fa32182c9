"""The softmax run that stands beside another one, and the settings in which runs differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from wcdas.errors import InputError
from wcdas.report.charts import counted
from wcdas.report.record import Record, neck_of, read_record
from wcdas.run.folder import RunFolder
from wcdas.run.spec import flat

METHOD = "softmax"
NONE = "–"  # where a run has no such key
OF_A_METHOD = ("method", "seed", "data", "head", "options", "stages", "info")
MOST = 8  # settings that are named in a line


def find_baseline(record: Record) -> Record | None:
    """Find a finished softmax run in the same folder, on the same data with the same backbone.

    One with the same neck comes first, then one with the same seed, then the newest.
    """
    if record.method == METHOD:
        return None
    found = []
    for path in record.folder.resolve().parent.glob("*/run.toml"):
        folder = RunFolder(path.parent)
        try:
            other = folder.read_run() if folder.is_finished else {}
        except (InputError, OSError):
            continue
        if other.get("method") == METHOD and _alike(record.run, other):
            same = neck_of(other) == record.neck, other["seed"] == record.seed
            found.append((*same, path.stat().st_mtime, path.parent))
    for *_, path in sorted(found, reverse=True):
        try:
            baseline = read_record(path)
        except InputError:
            continue
        if baseline is not None:
            return baseline
    return None


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    same_data = one["info"]["fingerprint"] == other["info"]["fingerprint"]
    return same_data and all(one.get(k) == other.get(k) for k in ("backbone", "input_size"))


def beside_told(record: Record, baseline: Record) -> str:
    """Tell in a line how a baseline was trained otherwise, but for what makes the methods."""
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


def differing(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the dotted keys whose values are not the same, with that of each run."""
    tables = [_flat(record, records) for record in records]
    keys = dict.fromkeys(key for table in tables for key in table)
    values = {key: [table.get(key, NONE) for table in tables] for key in keys}
    return {key: found for key, found in values.items() if len(set(map(repr, found))) > 1}


def _flat(record: Record, records: Sequence[Record]) -> dict[str, Any]:
    """The settings by dotted keys; a stage that not all runs have is one line."""
    run = {key: value for key, value in record.run.items() if key not in ("info", "stages")}
    stages: dict[str, Any] = {}
    for name, stage in record.run["stages"].items():
        if all(name in other.run["stages"] for other in records):
            stages[name] = stage
        else:
            epochs = f"{counted(stage['epochs'], 'epoch')}, " if "epochs" in stage else ""
            stages[name] = f"{epochs}trains {stage['trains']}"
    settings = flat(run | {"neck": record.neck, "stages": stages})
    return settings | {"info.prior": record.run["info"]["prior"]}

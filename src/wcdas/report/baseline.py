"""The linear softmax run that stands beside another one."""

from wcdas.errors import InputError
from wcdas.report.record import Record, neck_of, read_record
from wcdas.run.folder import RunFolder

METHOD = "softmax"


def find_baseline(record: Record) -> Record | None:
    """A finished softmax run in the same folder, on the same data with the same backbone.

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
            same = neck_of(other) == neck_of(record.run), other["seed"] == record.seed
            found.append((*same, path.stat().st_mtime, path.parent))
    for *_, path in sorted(found, reverse=True):
        try:
            baseline = read_record(path)
        except InputError:
            continue
        if baseline is not None:
            return baseline
    return None


def _alike(one: dict[str, object], other: dict[str, object]) -> bool:
    fingerprints = (run.get("info", {}) for run in (one, other))
    same_data = len({info["fingerprint"] for info in fingerprints}) == 1  # type: ignore[index]
    return same_data and all(one.get(k) == other.get(k) for k in ("backbone", "input_size"))

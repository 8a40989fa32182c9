"""What a logger calls a run, the same when the run is resumed."""

from collections.abc import Callable
from pathlib import Path


def run_id(run: Path, logger: str, create: Callable[[], str]) -> str:
    """The identifier kept in the run's folder, created the first time."""
    file = run / logger / "run_id"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(create(), encoding="utf-8")
    return file.read_text(encoding="utf-8")

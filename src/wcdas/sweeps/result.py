"""A sweep that has come to its end."""

import json
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wcdas.errors import WorkError
from wcdas.run.folder import RunFolder


@dataclass(frozen=True)
class Sweep:
    """A sweep's folder with its results; stands for the folder wherever a path is expected."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @cached_property
    def results(self) -> dict[str, Any]:
        """Mean and standard deviation for every method, and the metrics of every run."""
        results: dict[str, Any] = json.loads((self.path / "results.json").read_text("utf-8"))
        return results

    @property
    def failed(self) -> dict[str, str]:
        """The runs that failed, and why."""
        runs = self.results["runs"].items()
        return {name: run["reason"] for name, run in runs if run["state"] == "failed"}

    def table(self) -> str:
        """Accuracy of the last epoch by group, a row for each method, as text."""
        return (self.path / "table.txt").read_text("utf-8").rstrip("\n")

    def raise_failures(self) -> None:
        """An error where a run failed."""
        if not self.failed:
            return
        diverged = [name for name in self.failed if RunFolder(self.path / name).failure.exists()]
        told = [
            f"{len(self.failed)} of {len(self.results['runs'])} runs failed: "
            f"{', '.join(self.failed)}"
        ]
        if diverged:
            told += [
                f"the loss of {', '.join(diverged)} became NaN or infinite, "
                "so start a new sweep with a lower rate, --set lr=…"
            ]
        if len(diverged) < len(self.failed):
            told += [f"try {'the others' if diverged else 'them'} again with: {again(self.path)}"]
        raise WorkError("; ".join(told))


def again(path: Path) -> str:
    """The command that goes on with a sweep."""
    return f"wcdas sweep --out {shlex.quote(str(path))} --resume"

"""A sweep that has come to its end."""

import json
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wcdas.errors import WorkError


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
        if self.failed:
            raise WorkError(
                f"{len(self.failed)} of {len(self.results['runs'])} runs failed: "
                f"{', '.join(self.failed)}; try them again with: {again(self.path)}"
            )


def again(path: Path) -> str:
    """The command that goes on with a sweep."""
    return f"wcdas sweep --out {shlex.quote(str(path))} --resume"

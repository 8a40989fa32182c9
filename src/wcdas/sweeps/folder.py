"""The folder of a sweep: what was asked, a run's folder for each run, the table."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import tomli_w

from wcdas.data.dataset import Dataset
from wcdas.errors import InputError, WorkError
from wcdas.files import (
    DamagedFile,
    MissingFile,
    locked,
    read_json,
    read_text,
    read_toml,
    write_synced,
)
from wcdas.run.contents import Data
from wcdas.run.diagnosis import warnings_in
from wcdas.run.folder import RunFolder
from wcdas.run.origin import versions
from wcdas.run.settings import short_name
from wcdas.sweeps.plan import Plan, SweepRun
from wcdas.sweeps.results import as_csv, as_markdown, as_text, summarise


class _Info(TypedDict):
    fingerprint: str
    class_counts: list[int]
    versions: dict[str, str]


class _Stored(TypedDict):
    """sweep.toml."""

    methods: list[str]
    seeds: int
    data: Data
    recipe: NotRequired[dict[str, Any]]
    settings: dict[str, Any]
    skip_bad: bool
    info: _Info


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep's folder with its results; stands for the folder wherever a path is expected."""

    path: Path
    ray: str | None = None  # the cluster that did it

    def __fspath__(self) -> str:
        return str(self.path)

    @cached_property
    def results(self) -> dict[str, Any]:
        """Mean and standard deviation for every method, and the metrics of every run."""
        remedy = f"it is made again by: {again(self.path)}"
        results: dict[str, Any] = read_json(self.path / "results.json", dict[str, Any], remedy)
        return results

    @property
    def failed(self) -> dict[str, str]:
        """The runs that failed, and why."""
        runs = self.results["runs"].items()
        return {name: run["reason"] for name, run in runs if run["state"] == "failed"}

    def table(self) -> str:
        """Accuracy of the last epoch by group, a row for each method, as text."""
        return read_text(self.path / "table.txt").rstrip("\n")

    def raise_failures(self) -> None:
        """An error where a run failed."""
        failed = self.failed
        if not failed:
            return
        diverged = [name for name in failed if RunFolder(self.path / name).failure.exists()]
        told = [f"{len(failed)} of {len(self.results['runs'])} runs failed: {', '.join(failed)}"]
        if diverged:
            told += [
                f"the loss of {', '.join(diverged)} became NaN or infinite, "
                "so start a new sweep with a lower rate, --set lr=…"
            ]
        if len(diverged) < len(failed):
            which = "the others" if diverged else "them"
            told += [f"try {which} again with: {again(self.path, self.ray)}"]
        raise WorkError("; ".join(told))


def again(path: Path, ray: str | None = None) -> str:
    """Return the command that goes on with a sweep, on a Ray cluster where it was on one."""
    there = f" --ray {shlex.quote(ray)}" if ray else ""
    return f"wcdas sweep --out {shlex.quote(str(path))} --resume{there}"


class SweepFolder:
    """Paths and small files of one sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._plan = path / "sweep.toml"

    @property
    def exists(self) -> bool:
        return self._plan.exists()

    def run(self, run: SweepRun) -> RunFolder:
        return RunFolder(self.path / run.name)

    def unfinished(self, plan: Plan) -> list[SweepRun]:
        return [run for run in plan.runs if not self.run(run).is_finished]

    def threads(self, plan: Plan) -> int | None:
        """Return how many threads the runs that have begun compute with."""
        begun = [self.run(run) for run in plan.runs if self.run(run).exists]
        return next((run.read_run()["info"].get("threads") for run in begun), None)

    def read(self) -> tuple[Plan, dict[str, Any]]:
        """Return what was asked, and what was found then."""
        try:
            stored = read_toml(self._plan, _Stored)
            info = stored.pop("info")
            methods = tuple(stored.pop("methods"))
            return Plan(methods=methods, **({"recipe": {}} | stored)), {"info": info}
        except MissingFile:
            raise InputError(f"{self.path} holds no sweep; expected a sweep.toml in it") from None
        except TypeError as error:
            raise DamagedFile(f"{self._plan} is damaged: {error}") from None

    def write(self, plan: Plan, dataset: Dataset) -> None:
        info = {
            "fingerprint": dataset.fingerprint,
            "class_counts": dataset.class_counts.tolist(),
            "versions": versions(),
        }
        asked = dataclasses.asdict(plan) | {"methods": list(plan.methods)}
        if not plan.recipe:
            del asked["recipe"]
        self._write("sweep.toml", tomli_w.dumps(asked | {"info": info}))

    def write_results(self, plan: Plan, failures: Mapping[SweepRun, str]) -> None:
        """Write the table as it stands, from the metrics of the runs that are finished."""
        finished = [run for run in plan.runs if self.run(run).is_finished]
        metrics = {run: self.run(run).read_metrics() for run in finished}
        warnings = {run: warnings_in(self.run(run).read_log()) for run in finished}
        predictions = {run: self.run(run).read_predictions() for run in finished}
        answers = {run: found for run, found in predictions.items() if found is not None}
        results = summarise(plan, short_name(plan.source), metrics, failures, warnings, answers)
        self._write("results.json", json.dumps(results, indent=1))
        self._write("table.md", as_markdown(results))
        self._write("table.csv", as_csv(results))
        self._write("table.txt", as_text(results))

    @contextmanager
    def claimed(self) -> Iterator[int]:
        """Make the folder and keep other sweeps out; the descriptor holds the claim while open."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"the output folder {self.path} cannot be written ({error.strerror}); "
                "choose another with --out"
            ) from None
        with locked(self.path, "wait until its runs have ended, or choose another") as claim:
            yield claim

    def _write(self, name: str, text: str) -> None:
        """Write a file, but not again where it would not change."""
        data, path = f"{text.rstrip()}\n".encode(), self.path / name
        if not path.exists() or path.read_bytes() != data:
            write_synced(path, data)

"""A finished run, read from the files in its folder."""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from wcdas.data.description import LongTailSummary, summary
from wcdas.data.sources.hugging_face import IN_MEMORY
from wcdas.files import DamagedFile, MissingFile, read_json, write_synced
from wcdas.groups import group_means, group_names
from wcdas.report.measure import FORMAT, Measured
from wcdas.run.diagnosis import warnings_in
from wcdas.run.folder import RunFolder
from wcdas.run.spec import NeckConfig, as_table

SAME_RHO = 0.02  # a spread over the classes that says nothing about them


@dataclass(frozen=True, eq=False)
class Record:
    """A finished run as its files tell it."""

    folder: Path
    run: dict[str, Any]
    log: list[dict[str, Any]]
    metrics: dict[str, Any]
    measured: dict[str, Any]

    @property
    def method(self) -> str:
        return str(self.metrics["method"])

    @property
    def data(self) -> str:
        return str(self.metrics["dataset"])

    @property
    def seed(self) -> int:
        return int(self.run["seed"])

    @property
    def neck(self) -> dict[str, Any]:
        return neck_of(self.run)

    @property
    def in_memory(self) -> bool:
        """Whether the data was an object that no command can name."""
        return str(self.run["data"]["source"]).startswith(IN_MEMORY)

    @property
    def recipe(self) -> str:
        """The run's settings as a shell takes them."""
        return shlex.quote(str(self.folder / "run.toml"))

    @property
    def again(self) -> str:
        """The command that repeats the run; of data in memory, the call in Python."""
        if self.in_memory:
            recipe = str(self.folder / "run.toml")
            return f'wcdas.train(DATASET, recipe={recipe!r}, out="NEW_FOLDER")'
        return f"wcdas train --recipe {self.recipe} --out NEW_FOLDER"

    @property
    def started_from(self) -> str:
        """The weights that the backbone started from; empty where it was random ones."""
        weights = str(self.run["backbone"]["weights"])
        told = "pretrained weights" if weights == "pretrained" else weights
        return str(self.run["info"].get("weights") or told)

    @property
    def evaluated_at(self) -> int:
        """The side of the images in evaluation."""
        return int(self.run.get("evaluation_size") or self.run["input_size"])

    @property
    def mirroring(self) -> str:
        """What the images decided about mirroring, and why; empty where they were not asked."""
        return str(self.run["info"]["data"].get("mirroring", ""))

    @property
    def headline(self) -> float | None:
        value: float | None = self.metrics[self.metrics["headline"]]
        return value

    @property
    def warnings(self) -> list[str]:
        """The warnings that were given while it trained."""
        return warnings_in(self.log)

    @cached_property
    def class_names(self) -> list[str]:
        return [str(row["class"]) for row in self.metrics["per_class"]]

    @cached_property
    def class_counts(self) -> list[int]:
        return [row["train_images"] for row in self.metrics["per_class"]]

    @cached_property
    def test_counts(self) -> list[int]:
        return [row["test_images"] for row in self.metrics["per_class"]]

    @cached_property
    def class_groups(self) -> list[str]:
        """The group of every class: many, medium or few."""
        return group_names(torch.tensor(self.class_counts))

    @cached_property
    def accuracy(self) -> list[float | None]:
        return [row["accuracy"] for row in self.metrics["per_class"]]

    @cached_property
    def tail(self) -> LongTailSummary:
        return summary(torch.tensor(self.class_counts))

    @property
    def mean_rho(self) -> dict[str, float | None]:
        """The mean ρ of each group, where the head has one."""
        rho = torch.tensor(self.measured["rho"], dtype=torch.float64)
        return group_means(rho, torch.tensor(self.class_counts))

    @property
    def rho_tells(self) -> bool:
        """Whether ρ has come to differ between the classes."""
        rho = self.measured["rho"]
        return max(rho) - min(rho) > SAME_RHO

    def standard_error(self, group: str | None = None) -> float | None:
        """Return that of a group's accuracy, or of the headline, from the numbers of test images.

        p(1 − p) is taken to be the same in every class, √(p(1 − p)·Σ 1/n_c)/C, and p as if two
        more images had been seen, one recognised: none or all of few images prove little.
        """
        p = self.headline if group is None else self.metrics[group]
        if p is None:
            return None
        of_class = zip(self.class_groups, self.test_counts, strict=True)
        tested = [n for of, n in of_class if n and group in (None, of)]
        p = (p * sum(tested) + 1) / (sum(tested) + 2)
        return math.sqrt(p * (1 - p) * sum(1 / n for n in tested)) / len(tested)


def read_record(folder: Path) -> Record | None:
    """Read the run in a folder; None where it was not measured for a page."""
    files = RunFolder(folder)
    run = files.read_run()
    metrics = files.read_metrics()
    try:
        measured = read_json(folder / "report.json", Measured)
    except (DamagedFile, MissingFile):
        return None
    if measured["format"] != FORMAT or not _fits(measured, metrics):
        return None
    return Record(folder, run, files.read_log(), metrics, measured)


def _fits(measured: Mapping[str, Any], metrics: Mapping[str, Any]) -> bool:
    """Whether what was measured is of the classes of a run."""
    classes = range(len(metrics["per_class"]))
    rho, rows = measured["rho"], (measured["map"] or {"rows": []})["rows"]
    pairs = [(pair["true"], pair["predicted"]) for pair in measured["confusions"]]
    pairs += [(row[2], row[3]) for row in rows if len(row) == 4]
    return (
        (rho is None or len(rho) == len(classes))
        and all(len(row) == 4 for row in rows)
        and all(true in classes and predicted in classes for true, predicted in pairs)
    )


def write_measured(folder: Path, measured: dict[str, Any]) -> None:
    data = json.dumps(measured, separators=(",", ":"))
    write_synced(folder / "report.json", f"{data}\n".encode())


def neck_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table `neck` of a run.toml; those of earlier versions have none."""
    return as_table(NeckConfig()) | run.get("neck", {})

"""Results as files: a line for each finished run, from which tables are made without the runs.

A folder of results holds a file for each dataset. A line has all that tells a run apart, what came
out, and what it was done with.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from wcdas.errors import InputError
from wcdas.files import read_json_lines
from wcdas.methods import METHODS
from wcdas.run.contents import Summary
from wcdas.run.spec import flat
from wcdas.sweeps.plan import Plan, SweepRun
from wcdas.sweeps.results import Results, summarise

DECIMALS = 6  # of a metric


class Margin(TypedDict):
    """A difference and how far chance may carry it, by seeds and test images."""

    mean: float
    margin: float


class ToBest(Margin):
    """How far a method is from the best one of its sweep."""

    best: str


class Line(TypedDict):
    """A finished run.

    `settings` are those that were given, by `--set` and by recipes, with dotted keys; `seconds`
    those of training; `code` the digest of the package, and its commit where that is known.
    """

    dataset: str
    imbalance: float | None
    settings: dict[str, Any]
    method: str
    seed: int
    metrics: Summary
    to_best: NotRequired[ToBest]
    seconds: float
    device: str | None
    threads: int | None
    code: dict[str, str]
    versions: dict[str, str]
    fingerprint: str


class Protocol(NamedTuple):
    """What the rows of a table have in common."""

    dataset: str
    imbalance: float  # 0 where the data are as they are
    settings: str  # as JSON
    fingerprint: str


def read_results(folder: Path) -> list[Line]:
    """Return the lines of all files in a folder of results."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise InputError(f"{folder} holds no results; expected .jsonl files of `wcdas results`")
    return [line for file in files for line in read_lines(file)]


def by_protocol(lines: Iterable[Line]) -> dict[Protocol, list[Line]]:
    """Return the lines of each protocol, in a stable order."""
    found: dict[Protocol, list[Line]] = {}
    for line in sorted(lines, key=identity):
        found.setdefault(protocol_of(line), []).append(line)
    return found


def select(
    lines: Iterable[Line], dataset: str, imbalance: float | None, settings: Mapping[str, Any]
) -> list[Line]:
    """Return the lines of the protocol that has these settings; without an imbalance there must be
    one only."""
    found = [
        line
        for line in lines
        if (line["dataset"], line["settings"]) == (dataset, settings)
        and imbalance in (None, line["imbalance"])
    ]
    if len(protocols := by_protocol(found)) > 1:
        told = ", ".join(f"imbalance {p.imbalance:g} of data {p.fingerprint}" for p in protocols)
        raise InputError(f"results of {dataset} with equal settings differ in {told}; name one")
    return found


def given_settings(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was given for a run, later over earlier, with dotted keys."""
    return {key: value for layer in layers for key, value in flat(layer).items()}


def summary(lines: Sequence[Line]) -> Results:
    """Return the lines of one protocol as the results of a sweep, of which tables are made.

    How far a method is from the best one stands there where its sweep has compared these very runs.
    """
    seeds = sorted({line["seed"] for line in lines})
    names = {line["method"]: None for line in lines}
    methods = [name for name in METHODS if name in names]
    methods += [name for name in names if name not in METHODS]
    metrics = {SweepRun(one["method"], seeds.index(one["seed"])): one["metrics"] for one in lines}
    dataset = lines[0]["dataset"]
    plan = Plan(tuple(methods), len(seeds), {"source": dataset}, {}, {}, False)
    results = summarise(plan, dataset, metrics, {}, {})
    means = {m: of[results["headline"]]["mean"] for m, of in results["methods"].items()}
    for method, of in results["methods"].items():
        found = [line.get("to_best") for line in lines if line["method"] == method]
        compared, best = found[0], results["best"]
        if compared and compared["best"] == best and all(one == compared for one in found):
            same = round(means[method] - means[best] - compared["mean"], DECIMALS - 2) == 0
            of["to_best"] = {key: compared[key] for key in ("mean", "margin")} if same else None
    return results


def protocol_of(line: Line) -> Protocol:
    """Return what a run has in common with others of its table."""
    settings = json.dumps(line["settings"], sort_keys=True, ensure_ascii=False)
    return Protocol(line["dataset"], line["imbalance"] or 0.0, settings, line["fingerprint"])


def identity(line: Line) -> tuple[Protocol, str, int]:
    """Return what tells a run apart; where it is the same, the run was done again."""
    return protocol_of(line), line["method"], line["seed"]


def read_lines(file: Path) -> list[Line]:
    """Return the lines of one file."""
    lines: list[Line] = read_json_lines(file, Line, "delete the line, and add its run again")
    return lines

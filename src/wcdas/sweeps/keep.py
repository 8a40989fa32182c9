"""Keep the numbers of finished runs: from their folders to lines of files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from wcdas.errors import InputError
from wcdas.files import locked, read_json, write_synced
from wcdas.run.folder import RunFolder
from wcdas.run.origin import commit, source
from wcdas.sweeps.folder import SweepFolder, again
from wcdas.sweeps.results import FACTS
from wcdas.sweeps.results_file import (
    DECIMALS,
    Line,
    Margin,
    ToBest,
    given_settings,
    identity,
    read_lines,
)

# Of the data what is no setting: where they lie, and what a line has a place for.
NO_SETTINGS = ("source", "root", "classes", "labels", "imbalance")


class Kept(NamedTuple):
    """What was done to each file, and why runs were left out."""

    files: list[str]
    left_out: list[str]
    runs: int


class _OfMethod(TypedDict):
    to_best: Margin | None


class _OfSweep(TypedDict):
    """What is read of a sweep's results.json."""

    best: str | None
    methods: dict[str, _OfMethod]


def keep_results(paths: Sequence[Path], to: Path) -> Kept:
    """Write a line for each finished run into the files of a folder.

    Args:
        paths: folders of runs and of sweeps, and files of results.
        to: the folder; a line takes the place of that of an equal run.
    """
    lines, left_out = _collect(paths)
    files = []
    if lines:
        to.mkdir(parents=True, exist_ok=True)
        with locked(to, "wait until it has ended, or name another with --to"):
            for dataset in sorted({line["dataset"] for line in lines}):
                own = [line for line in lines if line["dataset"] == dataset]
                files.append(_keep(own, to / f"{dataset}.jsonl"))
    return Kept(files, left_out, len(lines) + len(left_out))


def _collect(paths: Sequence[Path]) -> tuple[list[Line], list[str]]:
    lines, left_out = [], []
    for path in paths:
        runs, compared = [path], dict[str, ToBest]()
        if path.suffix == ".jsonl":
            lines += [_with_commit(line) for line in read_lines(path)]
            continue
        if SweepFolder(path).exists:
            plan, _ = SweepFolder(path).read()
            runs, compared = [path / run.name for run in plan.runs], _compared(path)
        elif not RunFolder(path).exists:
            raise InputError(
                f"{path} holds no run and no sweep; expected a folder with run.toml or sweep.toml, "
                "or a .jsonl file of results"
            )
        for run in runs:
            try:
                lines.append(_with_commit(_line(RunFolder(run), compared)))
            except InputError as error:
                left_out.append(str(error))
    return lines, left_out


def _compared(sweep: Path) -> dict[str, ToBest]:
    remedy = f"it is made again by: {again(sweep)}"
    results: _OfSweep = read_json(sweep / "results.json", _OfSweep, remedy)
    best = str(results["best"])
    return {
        method: {
            "best": best,
            "mean": round(of["mean"], DECIMALS),
            "margin": round(of["margin"], DECIMALS),
        }
        for method, found in results["methods"].items()
        if (of := found["to_best"])
    }


def _line(folder: RunFolder, compared: Mapping[str, ToBest]) -> Line:
    run, metrics = folder.read_run(), folder.read_metrics()
    info, method = run["info"], run["method"]
    of_data = {f"data.{k}": v for k, v in run["data"].items() if k not in NO_SETTINGS}
    line: Line = {
        "dataset": metrics["dataset"],
        "imbalance": info["data"].get("imbalance"),
        "settings": dict(sorted((given_settings(info["given"]) | of_data).items())),
        "method": method,
        "seed": run["seed"],
        "metrics": _rounded({key: metrics[key] for key in FACTS}),
        "seconds": round(sum(epoch["seconds"] for epoch in folder.read_log()), 1),
        "device": metrics.get("device"),
        "threads": info.get("threads"),
        "code": info.get("code", {}),
        "versions": info["versions"],
        "fingerprint": info["fingerprint"],
    }
    if method in compared:
        line["to_best"] = compared[method]
    return line


def _rounded(values: Mapping[str, Any]) -> Any:
    return {k: round(v, DECIMALS) if isinstance(v, float) else v for k, v in values.items()}


def _with_commit(line: Line) -> Line:
    """Name the commit of a run that was done outside a checkout with the very code of this one."""
    code = line["code"]
    if "commit" not in code and code.get("source") == source() and commit():
        line["code"] = code | {"commit": commit()}
    return line


def _keep(lines: Sequence[Line], file: Path) -> str:
    """Lay lines over those of a file; returns what was done."""
    before = {identity(line): line for line in (read_lines(file) if file.exists() else [])}
    added = {identity(line): line for line in lines}
    after = before | added
    text = [json.dumps(after[key]) + "\n" for key in sorted(after)]
    write_synced(file, "".join(text).encode())
    replaced = len(before) + len(added) - len(after)
    many = f"{len(after)} line{'s' * (len(after) != 1)}"
    return f"{file}: {many}, {len(added) - replaced} new, {replaced} replaced"

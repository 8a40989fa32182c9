"""The folder of a run through the paper: which claims were asked for, and what was found.

A claim that is judged stays judged until what its verdict rests on changes.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from wcdas.errors import InputError, unknown
from wcdas.files import write_synced
from wcdas.paper import CLAIMS
from wcdas.paper.claim import Finding, Setting, Table, Verdict
from wcdas.run import check_free, source

MODES = ("quick", "real")


def chosen(names: Sequence[str], everything: bool) -> list[str]:
    """Return the claims that are asked for, in the paper's order."""
    if names and everything:
        raise InputError(f"--all and the name {names[0]!r} were given; expected one or the other")
    for name in names:
        if name not in CLAIMS:
            raise InputError(f"{unknown('claim', name, CLAIMS)}; see wcdas paper")
    return [name for name in CLAIMS if everything or name in names]


def begin(names: list[str], setting: Setting, resume: bool) -> list[str]:
    """Make the folder, or go on with it; returns the claims to judge, those asked for before
    included."""
    if setting.mode not in MODES:
        raise unknown("mode", setting.mode, MODES)
    if setting.measured is not None and not (setting.measured / "paper.json").exists():
        raise InputError(
            f"--measured is {setting.measured}, which holds no paper; expected the --out of an "
            "earlier wcdas paper --mode real"
        )
    if resume:
        mode, before = _asked(setting.out)
        if mode != setting.mode:
            raise InputError(
                f"{setting.out} was begun with --mode {mode}; go on with the same mode or choose "
                "another --out"
            )
        names = [name for name in CLAIMS if name in {*names, *before}]
    else:
        check_free(setting.out)
    if not names:
        raise InputError("no claim was named; expected names of `wcdas paper`, or --all")
    try:
        _write(setting.out / "paper.json", {"mode": setting.mode, "claims": names})
    except OSError as error:
        raise InputError(
            f"the output folder {setting.out} cannot be written ({error.strerror}); "
            "choose another with --out"
        ) from None
    return names


def _asked(path: Path) -> tuple[str, list[str]]:
    try:
        stored = json.loads((path / "paper.json").read_text("utf-8"))
        return str(stored["mode"]), list(stored["claims"])
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} holds no paper; expected a paper.json in it") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path / 'paper.json'} is damaged: {error}") from None


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_synced(path, f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode())


@dataclass(frozen=True)
class Result:
    """A finding, and how long it took."""

    finding: Finding
    seconds: float


def fingerprint(setting: Setting) -> str:
    """Return that of all a verdict depends on: the package, PyTorch, the mode and the data."""
    given = (setting.mode, setting.data_root, setting.measured, *setting.runs)
    parts = (source(), torch.__version__, *given, json.dumps(setting.results))
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def write_result(setting: Setting, name: str, result: Result) -> None:
    finding = result.finding
    figures = [str(path.relative_to(setting.out)) for path in finding.figures]
    told = asdict(finding) | {"figures": figures}
    whole = {"fingerprint": fingerprint(setting), "seconds": result.seconds, "finding": told}
    _write(setting.out / "results" / f"{name}.json", whole)


def read_result(setting: Setting, name: str) -> Result | None:
    """Return None where there is none, or it rests on other inputs, or data or figures are
    missing."""
    try:
        stored = json.loads((setting.out / "results" / f"{name}.json").read_text("utf-8"))
        told = stored["finding"]
        finding = Finding(
            Verdict(told["verdict"]),
            told["sentence"],
            told["numbers"],
            tuple(setting.out / path for path in told["figures"]),
            tuple(
                Table(t["title"], tuple(t["columns"]), tuple(map(tuple, t["rows"])), t["note"])
                for t in told["tables"]
            ),
        )
        current = stored["fingerprint"] == fingerprint(setting)
        result = Result(finding, float(stored["seconds"]))
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    complete = all(path.exists() for path in finding.figures)
    return result if current and complete and finding.verdict != Verdict.NEEDS_DATA else None

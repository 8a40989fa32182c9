"""What was found, as JSON: a claim that is judged stays judged until what it rests on changes."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import wcdas
from wcdas.files import write_synced
from wcdas.paper.claim import Finding, Setting, Table, Verdict


@dataclass(frozen=True)
class Result:
    """A finding, and how long it took."""

    finding: Finding
    seconds: float


def fingerprint(setting: Setting) -> str:
    """Of all that a verdict depends on: the package, PyTorch, the mode and the data."""
    data = (setting.mode, setting.data_root, setting.measured)
    parts = (_package(), torch.__version__, *map(str, data))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def _package() -> str:
    root = Path(wcdas.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".toml")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def write_result(setting: Setting, name: str, result: Result) -> None:
    finding = result.finding
    figures = [str(path.relative_to(setting.out)) for path in finding.figures]
    stored = asdict(finding) | {"numbers": dict(finding.numbers), "figures": figures}
    text = json.dumps(
        {"fingerprint": fingerprint(setting), "seconds": result.seconds, "finding": stored},
        indent=1,
        ensure_ascii=False,
    )
    path = _path(setting, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_synced(path, f"{text}\n".encode())


def read_result(setting: Setting, name: str) -> Result | None:
    """None where there is none, or it rests on other inputs, or data or figures are missing."""
    try:
        stored = json.loads(_path(setting, name).read_text("utf-8"))
        finding = _finding(setting, stored["finding"])
        current = stored["fingerprint"] == fingerprint(setting)
        result = Result(finding, float(stored["seconds"]))
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    complete = all(path.exists() for path in finding.figures)
    return result if current and complete and finding.verdict != Verdict.NEEDS_DATA else None


def _path(setting: Setting, name: str) -> Path:
    return setting.out / "results" / f"{name}.json"


def _finding(setting: Setting, stored: dict[str, Any]) -> Finding:
    tables = tuple(
        Table(
            table["title"],
            tuple(table["columns"]),
            tuple(tuple(row) for row in table["rows"]),
            table["note"],
        )
        for table in stored["tables"]
    )
    return Finding(
        Verdict(stored["verdict"]),
        stored["sentence"],
        stored["numbers"],
        tuple(setting.out / path for path in stored["figures"]),
        tables,
    )

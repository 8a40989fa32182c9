"""Checkpoints that survive a crash at any moment.

A checkpoint is written aside, synced and renamed; its name ends with a digest of its bytes, so one
that was torn or damaged is recognised and the one before it is loaded.
"""

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from wcdas.files import write_synced

KEPT = 2


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write the state after `step` steps of the whole run; the two newest are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    path = folder / f"{step:09d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    write_synced(path, data)
    others = [other for other in _newest_first(folder) if other != path]
    before = [other for other in others if _step(other) <= step]
    # A run goes on from its newest whole checkpoint, so later ones are damaged.
    stale = [other for other in others if other not in before[: KEPT - 1]]
    for old in (*stale, *folder.glob(".*.partial")):
        old.unlink(missing_ok=True)
    return path


def load_latest(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None."""
    for path in _newest_first(folder):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest()[:16] == path.stem.split("-")[1]:
            state: dict[str, Any] = torch.load(
                io.BytesIO(data), map_location="cpu", weights_only=True
            )
            return state
    return None


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*-*.pt"), reverse=True)


def _step(path: Path) -> int:
    return int(path.stem.split("-")[0])

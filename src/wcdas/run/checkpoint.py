"""Checkpoints that survive a crash at any moment.

A checkpoint is written aside, synced and renamed; its name ends with a digest of its bytes, so one
that was torn or damaged is recognised and the one before it is loaded. What every process has a
part of is in a folder beside it, whose digests it holds.
"""

import hashlib
import io
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from wcdas.data.classes import some
from wcdas.errors import InputError, WorkError, first_line
from wcdas.files import read_bytes, write_synced
from wcdas.run import shards
from wcdas.shapes import check_shape

KEPT = 2
PARTS, PARTS_END = "parts", ".parts"


def save(folder: Path, step: int, state: dict[str, Any], is_main: bool = True) -> None:
    """Write the state after `step` steps of the whole run; the two newest are kept.

    Of several processes the main one writes, and all of them what is in parts.
    """
    parts: dict[str, shards.Rows] = {}
    state = shards.set_apart(state, parts)
    if parts:
        state[PARTS] = shards.write(_parts_of(folder, step), parts)
    if not is_main:
        return
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
    kept = {_parts_of(folder, _step(whole)) for whole in _newest_first(folder)}
    for other in {*folder.glob(f"*{PARTS_END}")} - kept:
        shutil.rmtree(other, ignore_errors=True)


def load_latest(
    folder: Path, warn: Callable[[str], object] = lambda _: None
) -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None; `warn` is told of damaged ones."""
    damaged: list[str] = []
    found = None
    for path in _newest_first(folder):
        with suppress(InputError):  # a pipe, or a folder
            data = read_bytes(path)
            if hashlib.sha256(data).hexdigest()[:16] == path.stem.split("-")[1]:
                state = _loaded(path, data)
                parts = _parts_of(folder, _step(path))
                if PARTS not in state or shards.are_whole(parts, state[PARTS]):
                    found = path, state
                    break
        damaged.append(str(path))
    if damaged:
        several, start = len(damaged) > 1, "the one before" if found else "its beginning"
        warn(
            f"{some(damaged)} {'are' if several else 'is'} damaged, so the run goes on from {start}"
        )
    if found is None or PARTS not in found[1]:
        return found and found[1]
    return shards.read(_parts_of(folder, _step(found[0])), found[1])


def _parts_of(folder: Path, step: int) -> Path:
    return folder / f"{step:09d}{PARTS_END}"


def _loaded(path: Path, data: bytes) -> dict[str, Any]:
    """A file with the right digest in its name that was not written by `save` is a stranger's."""
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        check_shape(state, dict[str, Any], path.name)
    except Exception as error:  # PyTorch's reader stumbles anywhere over other contents
        raise WorkError(
            f"{path} was not written by wcdas ({first_line(error)}); code in a file is never run. "
            "Delete the file, and the run goes on from the one before"
        ) from None
    return state


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*-*.pt"), reverse=True)


def _step(path: Path) -> int:
    return int(path.stem.split("-")[0])

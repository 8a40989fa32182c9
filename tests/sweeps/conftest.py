"""Small sweeps: over the digits, and over their pixels as features."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import wcdas

QUICK = {"epochs": 1, "batch_size": 64}


@pytest.fixture(scope="session")
def sweep(features: Path) -> Callable[..., wcdas.Sweep]:
    """`wcdas.sweep` over the features, one epoch a stage."""

    def swept(*methods: str, seeds: int | None = None, **options: object) -> wcdas.Sweep:
        options = {"settings": QUICK, "data": features, "device": "cpu", "report": False} | options
        return wcdas.sweep(methods=methods or None, seeds=seeds, **options)

    return swept


@pytest.fixture
def stop_when() -> Callable[[Callable[[], object]], None]:
    """Ctrl-C as soon as a condition holds."""

    def stop(condition: Callable[[], object]) -> None:
        def wait() -> None:
            end = time.monotonic() + 600  # no test waits for ever
            while not condition() and time.monotonic() < end:
                time.sleep(0.002)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=wait, daemon=True).start()

    return stop


@pytest.fixture
def times() -> Callable[[Path], dict[Path, int]]:
    """When each file of a folder was last written."""

    def found(folder: Path) -> dict[Path, int]:
        files = [file for file in folder.rglob("*") if file.is_file() and file.name != ".lock"]
        return {file: file.stat().st_mtime_ns for file in files}

    return found


@pytest.fixture
def path_where(tmp_path: Path) -> Callable[..., str]:
    """A PYTHONPATH by which something happens to `wcdas COMMAND`, which see `tests/child.py`."""

    def path(command: str, *happens: object) -> str:
        folder = tmp_path / f"{command} {happens[0]}"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(
            f"import sys\nif {command!r} in sys.orig_argv:\n"
            f"    from tests.child import let\n    let(*{happens!r})\n"
        )
        return f"{folder}:{Path(__file__).parents[2]}:{os.environ.get('PYTHONPATH', '')}"

    return path


@pytest.fixture
def holding(path_where: Callable[..., str]) -> str:
    """One by which a run waits, after its first epoch, until it is stopped."""
    return path_where("train", "hold", 1, 0)

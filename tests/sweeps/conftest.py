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
HOLDS = """
import sys
if "train" in sys.orig_argv:
    from tests.child import let
    let("hold", 1, 0)
"""


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
def holding(tmp_path: Path) -> str:
    """A PYTHONPATH by which `wcdas train` waits, after its first epoch, until it is stopped."""
    (tmp_path / "holding").mkdir()
    (tmp_path / "holding" / "sitecustomize.py").write_text(HOLDS)
    root = Path(__file__).parents[2]
    return f"{tmp_path / 'holding'}:{root}:{os.environ.get('PYTHONPATH', '')}"

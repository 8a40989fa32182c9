"""Small sweeps: over the digits, and over their pixels as features."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import wcdas

QUICK = {"epochs": 1, "batch_size": 64}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pixels of the long-tailed digits as vectors, with labels beside them."""
    folder = tmp_path_factory.mktemp("features")
    split = wcdas.open_dataset("digits-lt").train
    np.save(folder / "pixels.npy", split.pixels.flatten(1).float().numpy() / 255)
    np.save(folder / "pixels_labels.npy", split.labels.numpy())
    return folder / "pixels.npy"


@pytest.fixture(scope="session")
def sweep(features: Path) -> Callable[..., wcdas.Sweep]:
    """`wcdas.sweep` over the features, one epoch a stage."""

    def swept(*methods: str, seeds: int | None = None, **options: object) -> wcdas.Sweep:
        options = {"settings": QUICK, "data": features, "device": "cpu"} | options
        return wcdas.sweep(methods=methods or None, seeds=seeds, **options)

    return swept


@pytest.fixture
def stop_when() -> Callable[[Callable[[], object]], None]:
    """Ctrl-C as soon as a condition holds."""

    def stop(condition: Callable[[], object]) -> None:
        def wait() -> None:
            end = time.monotonic() + 120
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

"""Quick runs of whole methods: on the pixels of the long-tailed digits, taken as features."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import wcdas
from wcdas.data import open_dataset

Pixels = Callable[..., wcdas.Run]


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def pixel_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pixels")
    split = open_dataset("digits-lt").train
    np.save(folder / "train.npy", split.pixels.flatten(1).float().numpy() / 255)
    np.save(folder / "train_labels.npy", split.labels.numpy())
    return folder / "train.npy"


@pytest.fixture
def on_pixels(pixel_files: Path, tmp_path: Path) -> Pixels:
    """Train a method on the pixels: `on_pixels("crt", epochs=5)`; the run is in a new folder."""

    def run(method: str, **settings: object) -> wcdas.Run:
        out = tmp_path / f"{method}-{len(list(tmp_path.iterdir()))}"
        return wcdas.train(pixel_files, method, settings=settings, out=out, device="cpu")

    return run


@pytest.fixture
def loaded_top1() -> Callable[[wcdas.Run], float]:
    """The accuracy on the digits' test images of the model in a run's file."""

    def accuracy(run: wcdas.Run) -> float:
        test, model = open_dataset("digits-lt").test, wcdas.load(run, device="cpu")
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (model.info.mean, model.info.std))
        logits = model.logits((test.pixels.float() / 255 - mean) / std)
        return (logits.argmax(1) == test.labels).double().mean().item()

    return accuracy

"""Quick runs of whole methods on the long-tailed digits, as images and as features."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import wcdas
from wcdas.data import open_dataset

Pixels = Callable[..., wcdas.Run]


@pytest.fixture
def on_pixels(features: Path, tmp_path: Path) -> Pixels:
    """Train a method on the pixels: `on_pixels("crt", epochs=5)`; the run is in a new folder."""

    def run(method: str, **settings: object) -> wcdas.Run:
        out = tmp_path / f"{method}-{len(list(tmp_path.iterdir()))}"
        return wcdas.train(features, method, settings=settings, out=out, device="cpu", report=False)

    return run


@pytest.fixture(scope="session")
def on_digits(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., wcdas.Run]:
    """Train a method on the digits with the smallest network: `on_digits("ride")`."""

    def run(method: str, epochs: int = 12, **settings: object) -> wcdas.Run:
        given = {
            "stages.representation.epochs": epochs,
            "evaluate_every": 99,
            "backbone.name": "resnet8",
        }
        out = tmp_path_factory.mktemp(method) / "run"
        return wcdas.train(
            method=method, settings=given | settings, out=out, device="cpu", report=False
        )

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

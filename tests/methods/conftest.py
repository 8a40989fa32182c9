"""Quick runs of whole methods: on images that anyone tells apart, and on digits as features."""

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import wcdas
from wcdas.methods import METHODS

Pixels = Callable[..., wcdas.Run]
Textures = Callable[..., wcdas.Run]

# Where a scale has to grow, or pairs are contrasted, it takes longer.
LONGER = ("t-vmf", "paco", "paco-wcdas")
# Without a head start a scale takes many epochs to grow.
GROWN = ("wcdas", "wcdas-single", "wcdas-meta", "wndas", "wndas-single")


@pytest.fixture
def on_pixels(features: Path, tmp_path: Path) -> Pixels:
    """Train a method on the pixels: `on_pixels("crt", epochs=5)`; the run is in a new folder."""

    def run(method: str, **settings: object) -> wcdas.Run:
        out = tmp_path / f"{method}-{len(list(tmp_path.iterdir()))}"
        return wcdas.train(features, method, settings=settings, out=out, device="cpu", report=False)

    return run


def drawn(kind: str, random: np.random.Generator) -> bytes:
    """Stripes down or across, or a bright plane, as a PNG of 8 × 8 pixels."""
    y, x = np.mgrid[:8, :8] + random.integers(4, size=(2, 1, 1))
    levels = {"down": 100 * (x // 2 % 2), "across": 100 * (y // 2 % 2), "bright": 220 + 0 * x}
    noisy = 20 + levels[kind] + random.normal(0, 8, size=(8, 8))
    file = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="session")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class of many, one of a medium number and one of few training images."""
    folder = tmp_path_factory.mktemp("textures")
    random = np.random.default_rng(0)
    for split, counts in (("train", (104, 60, 19)), ("test", (20, 20, 20))):
        names = np.repeat(["down", "across", "bright"], counts).tolist()
        rows = [{"bytes": drawn(name, random)} for name in names]
        pq.write_table(pa.table({"image": rows, "label": names}), folder / f"{split}.parquet")
    return folder


@pytest.fixture(scope="session")
def on_textures(textures: Path, tmp_path_factory: pytest.TempPathFactory) -> Textures:
    """Train a method on the textures with the smallest network, once: `on_textures("ride")`."""

    def settings(method: str) -> dict[str, object]:
        stages = METHODS[method].defaults["stages"]
        given = {
            "stages.representation.epochs": 8 if method in LONGER else 4,
            "lr": 0.05,
            "batch_size": 8,
            "evaluate_every": 99,
            "backbone.name": "resnet8",
        }
        if stages.get("classifier", {"trains": "nothing"})["trains"] != "nothing":
            given["stages.classifier.epochs"] = 2
        if method in GROWN:
            given["head.scale_init"] = 20.0
        return given

    @cache
    def run(method: str, seed: int = 0) -> wcdas.Run:
        out = tmp_path_factory.mktemp(method) / "run"
        return wcdas.train(
            textures,
            method,
            settings=settings(method),
            seed=seed,
            out=out,
            device="cpu",
            report=False,
        )

    return run


@pytest.fixture
def loaded_top1(textures: Path) -> Callable[[wcdas.Run], float]:
    """The accuracy on the textures' test images of the model in a run's file."""

    def accuracy(run: wcdas.Run) -> float:
        test, model = wcdas.open_dataset(textures).test, wcdas.load(run.path, device="cpu")
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (model.info.mean, model.info.std))
        logits = model.logits((test.pixels.float() / 255 - mean) / std)
        return (logits.argmax(1) == test.labels).double().mean().item()

    return accuracy

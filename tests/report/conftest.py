"""Runs with odd names, with very many classes, and a browser to look at their pages."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Browser, Page

import wcdas
from wcdas.data.dataset import Dataset, FeatureVectors
from wcdas.evaluation import evaluate
from wcdas.evaluation.predictions import predictions
from wcdas.heads import WCDASHead
from wcdas.report import report_on
from wcdas.run.folder import RunFolder

MARKUP = "<img src=x onerror=alert(1)>"
QUOTED = 'it\'s a "class" & more'
UNTESTED = "never tested"
MANY_CLASSES = 8_142


def made_of_noise(folder: Path, classes: dict[str, int], file_name: str) -> None:
    random = np.random.RandomState(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = random.randint(0, 255, (48, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / file_name.format(i))


@pytest.fixture(scope="session")
def odd_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that are markup, have quotes or dollars; a class without test images."""
    folder = tmp_path_factory.mktemp("odd")
    train = {MARKUP: 22, QUOTED: 8, "$a_1$": 6, UNTESTED: 5}
    test = dict.fromkeys([MARKUP, QUOTED, "$a_1$"], 6)
    made_of_noise(folder / "train", train, "p{}.png")
    made_of_noise(folder / "test", test, '"pic\'ture" <b>{}.png')
    return folder


@pytest.fixture(scope="session")
def odd_run(odd_data: Path, tmp_path_factory: pytest.TempPathFactory) -> wcdas.Run:
    return trained(odd_data, "wcdas", tmp_path_factory.mktemp("odd-runs") / "wcdas")


@pytest.fixture(scope="session")
def odd_softmax(odd_data: Path, odd_run: wcdas.Run) -> wcdas.Run:
    """The baseline, beside the run and trained after it."""
    return trained(odd_data, "softmax", odd_run.path.parent / "softmax")


def trained(data: Path, method: str, out: Path) -> wcdas.Run:
    settings = {"epochs": 1, "input_size": 32, "batch_size": 8, "backbone.weights": ""}
    return wcdas.train(data, method, settings=settings, out=out, device="cpu", workers=0)


@pytest.fixture(scope="session")
def many_classes(digits_run: wcdas.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files a run on 8,142 classes leaves, with a head that was not trained."""
    folder = RunFolder(tmp_path_factory.mktemp("many") / "run")
    torch.manual_seed(0)
    counts = (1000 * torch.arange(1, MANY_CLASSES + 1) ** -0.75).long().clamp(min=1)
    head = WCDASHead(32, MANY_CLASSES)
    labels = torch.arange(MANY_CLASSES)
    names = [f"Kingdom phylum order family genus species number {i}" for i in labels.tolist()]
    with torch.no_grad():
        features = head.weight + 0.1 * torch.randn(MANY_CLASSES, 32)
        logits = head(features)
    train = torch.repeat_interleave(labels, counts)
    dataset = Dataset(
        "many",
        names,
        FeatureVectors(torch.zeros(len(train), 1), train, "train"),
        FeatureVectors(features, labels, "test"),
        input_size=0,
        channels=32,
        augment_flip=False,
        fingerprint="0" * 64,
    )
    run = RunFolder(digits_run.path).read_run()
    folder.create(run | {"info": run["info"] | {"class_counts": counts.tolist()}})
    for line in RunFolder(digits_run.path).read_log():
        folder.log({key: value for key, value in line.items() if key != "rho_by_class"})
    metrics = evaluate(logits, labels, counts, names)
    folder.write_metrics({"method": "wcdas", "dataset": "many", "temperature": 1.0} | metrics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wcdas.report.measure.MAP_ITERATIONS", 250)
        report_on(folder.path, head, features, predictions(logits, labels), dataset)
    return folder.path


@pytest.fixture
def page(browser: Browser, patience: int) -> Iterator[Page]:
    """A page on a desktop that fails the test at any error, dialog or request to the network."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    context.set_default_timeout(patience)
    made = context.new_page()
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    made.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    made.on("request", lambda asked: _local(asked.url) or problems.append(asked.url))
    yield made
    context.close()
    assert not problems


def _local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:"))

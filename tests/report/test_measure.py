"""What is kept for a page is what the model did."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import wcdas
from wcdas.data.dataset import ArrayImages, Dataset, FeatureVectors
from wcdas.evaluation import evaluate
from wcdas.evaluation.predictions import predictions
from wcdas.heads import WCDASHead, create_head
from wcdas.heads.experts import ExpertsHead
from wcdas.report.measure import (
    MAP_IMAGES,
    SIDE,
    angle_histograms,
    class_concentrations,
    costly_confusions,
    feature_map,
    measure,
    thumbnail,
)


def stored(run: wcdas.Run) -> dict:
    return json.loads((run.path / "report.json").read_text())


def test_reliability_holds_every_image_and_the_calibration_error(digits_run):
    bins = stored(digits_run)["reliability"]
    images = sum(b["images"] for b in bins)
    assert images == digits_run.metrics["test_images"]
    ece = sum(b["images"] * abs(b["accuracy"] - b["confidence"]) for b in bins if b["images"])
    assert ece / images == pytest.approx(digits_run.metrics["ece"])


def test_rho_is_that_of_the_model(digits_run, mixed_run):
    rho = digits_run.model.classifier.head.concentration
    assert stored(digits_run)["rho"] == pytest.approx(rho.tolist(), abs=1e-5)
    assert stored(mixed_run)["rho"] is None


def test_rho_of_experts_is_their_mean():
    heads = [WCDASHead(4, 3, init=value) for value in (-1.0, 2.0)]
    mean = torch.tensor([-1.0, 2.0]).sigmoid().mean().item()
    assert class_concentrations(ExpertsHead(heads)) == pytest.approx([mean] * 3, abs=1e-5)
    mixed = ExpertsHead([heads[0], create_head("linear", 4, 3)])
    assert class_concentrations(mixed) is None


def test_angles_against_numpy():
    head = create_head("linear", 8, 4)
    features, labels = torch.randn(300, 8), torch.arange(300) % 4
    counts = torch.tensor([500, 500, 50, 5])
    found = angle_histograms(head, features, labels, counts)
    x, w = features.double().numpy(), head.weight.detach().double().numpy()
    cosine = (x / np.linalg.norm(x, axis=1)[:, None]) @ (w / np.linalg.norm(w, axis=1)[:, None]).T
    degrees = np.degrees(np.arccos(cosine))
    own = degrees[np.arange(300), labels]
    degrees[np.arange(300), labels] = np.inf
    other = degrees.min(1)
    edges = np.linspace(0, 180, 37)
    for group, classes in {"many": (0, 1), "medium": (2,), "few": (3,)}.items():
        mask = np.isin(labels, classes)
        assert found["own"][group] == np.histogram(own[mask], edges)[0].tolist()
        assert found["other"][group] == np.histogram(other[mask], edges)[0].tolist()
        assert found["mean_own"][group] == pytest.approx(own[mask].mean(), abs=0.01)


@pytest.mark.parametrize("name", wcdas.list_heads())
def test_every_head_is_measured(name):
    counts = torch.tensor([120, 50, 5])
    labels = torch.arange(30) % 3
    head, features = create_head(name, 6, 3, counts), torch.randn(30, 6)
    split = FeatureVectors(features, labels, "test")
    dataset = Dataset("d", ["a", "b", "c"], split, split, 0, 6, False, "")
    logits = head(features).detach()
    p = predictions(logits, labels)
    found = measure(head, features, p, dataset, evaluate(logits, labels, counts))
    assert sum(found["angles"]["own"]["few"]) == 30
    assert (found["rho"] is None) == (name not in ("wcdas", "wndas"))
    json.dumps(found, allow_nan=False)


def test_one_class_has_no_angles():
    head = create_head("linear", 8, 1)
    assert angle_histograms(head, torch.randn(3, 8), torch.zeros(3).long(), torch.ones(1)) is None


def test_costs_of_confusions():
    """Two of four images of class 0 and one of one of class 1: the second costs twice as much."""
    labels = torch.tensor([0, 0, 0, 0, 1])
    logits = torch.tensor([[3.0, 0], [3, 0], [0, 1], [0, 5], [1, 0]])
    split = FeatureVectors(torch.zeros(5, 2), labels, "test")
    p = predictions(logits, labels)
    pairs = costly_confusions([[0, 0, 2], [0, 1, 2], [1, 0, 1]], torch.tensor([4, 1]), p, split)
    assert [(pair["true"], pair["predicted"], pair["cost"]) for pair in pairs] == [
        (1, 0, 50.0),
        (0, 1, 25.0),
    ]
    assert [example["name"] for example in pairs[1]["examples"]] == ["test/3", "test/2"]
    assert all(example["picture"] is None for example in pairs[1]["examples"])
    lost = sum(pair["cost"] for pair in pairs)
    assert lost == pytest.approx(100 * (1 - (0.5 + 0) / 2))


def test_costs_add_up_to_what_the_run_lacks(digits_run):
    pairs, metrics = stored(digits_run)["confusions"], digits_run.metrics
    wrong = [(true, other, n) for true, other, n in metrics["confusion"] if true != other]
    if len(wrong) <= len(pairs):
        lost = sum(pair["cost"] for pair in pairs)
        assert lost == pytest.approx(100 * (1 - metrics["balanced_accuracy"]), abs=0.01)
    assert pairs == sorted(pairs, key=lambda pair: -pair["cost"])


@pytest.mark.parametrize(("channels", "side", "kind"), [(1, 8, "png"), (3, 300, "jpeg")])
def test_thumbnails_are_small_pictures(channels, side, kind):
    pixels = torch.randint(0, 255, (2, channels, side, side), dtype=torch.uint8)
    uri = thumbnail(ArrayImages(pixels, torch.zeros(2).long(), "test"), 1)
    head, data = uri.split(",")
    assert head == f"data:image/{kind};base64"
    picture = Image.open(io.BytesIO(base64.b64decode(data)))
    assert max(picture.size) <= SIDE
    if side <= SIDE:
        assert np.array_equal(np.asarray(picture), pixels[1, 0].numpy())


def test_a_picture_that_is_gone_has_no_thumbnail(mixed_folder):
    split = wcdas.open_dataset(mixed_folder).test
    assert thumbnail(split, 0) is not None
    split.paths[0] = "gone.png"
    assert thumbnail(split, 0) is None


def test_the_map_puts_like_with_like():
    torch.manual_seed(0)
    labels = torch.arange(90) % 3
    features = 10 * torch.eye(3)[labels] + torch.randn(90, 3)
    rows = torch.tensor(feature_map(features, labels, labels)["rows"]).double()
    assert len(rows) == 90
    at, of = rows[:, :2], rows[:, 2]
    distance = torch.cdist(at, at) + 1e9 * torch.eye(90)
    assert float((of[distance.argmin(1)] == of).double().mean()) > 0.95
    assert at.min() == 0
    assert at.max() == 1_000


def test_the_map_is_of_2000_samples_at_most(monkeypatch):
    monkeypatch.setattr("wcdas.report.measure.MAP_ITERATIONS", 250)
    labels = torch.zeros(MAP_IMAGES + 50).long()
    found = feature_map(torch.randn(MAP_IMAGES + 50, 2), labels, labels)
    assert (len(found["rows"]), found["of"]) == (MAP_IMAGES, MAP_IMAGES + 50)


@pytest.mark.parametrize(
    "features",
    [
        torch.randn(4, 3),
        torch.full((9, 3), torch.nan),
        torch.zeros(9, 3),
        torch.ones(9, 3) * torch.arange(1, 10)[:, None],  # one direction
    ],
)
def test_no_map_of_too_little(features):
    labels = torch.zeros(len(features)).long()
    assert feature_map(features, labels, labels) is None

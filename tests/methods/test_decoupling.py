"""cRT, LWS, τ-normalisation and nearest class mean: one representation, another classifier."""

import json
import tomllib

import numpy as np
import pytest
import torch

import wcdas
from wcdas.data import open_dataset
from wcdas.errors import InputError
from wcdas.evaluation import evaluate
from wcdas.heads import LinearHead, TauNormHead
from wcdas.heads.oltr import class_means
from wcdas.methods.classifier import Classifier
from wcdas.methods.decoupling import TAUS, choose_tau
from wcdas.methods.method import StageStart

SHORT = {
    "stages.representation.epochs": 2,
    "evaluate_every": 9,
    "backbone.name": "resnet8",
}


def head_of(run):
    return run.model.classifier.head


def log(run):
    return [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]


def test_all_share_the_representation_of_softmax(tmp_path):
    """A second stage leaves the backbone of the first as it was, to the last bit."""
    runs = {
        name: wcdas.train(
            method=name, settings=settings, out=tmp_path / name, device="cpu", report=False
        )
        for name, settings in (
            ("softmax", SHORT),
            ("crt", SHORT | {"stages.classifier.epochs": 1}),
            ("ncm", SHORT),
        )
    }
    backbones = {name: run.model.classifier.backbone.state_dict() for name, run in runs.items()}
    for name, value in backbones["softmax"].items():
        for other in ("crt", "ncm"):
            assert backbones[other][name].equal(value), (other, name)


def test_crt_starts_from_a_fresh_classifier(on_pixels):
    """After a step of nearly nothing its weights are those of a new layer, not the trained ones."""
    trained = head_of(on_pixels("softmax", epochs=8, lr=0.2))
    settings = {"stages.representation.epochs": 8, "lr": 0.2, "stages.classifier.lr": 1e-12}
    fresh = head_of(on_pixels("crt", **settings))
    assert fresh.weight.abs().max() <= 1 / 8 + 1e-6  # 1/√64, as nn.Linear starts
    assert trained.weight.abs().max() > 2 / 8
    bias = trained.bias
    assert bias is not None
    assert bias.abs().max() > 0


def test_lws_changes_only_norms(on_pixels):
    settings = {"stages.representation.epochs": 8, "stages.classifier.epochs": 3}
    run = on_pixels("lws", **settings)
    first = on_pixels("lws", **settings | {"stages.classifier.lr": 1e-12})
    assert head_of(run).bias is None
    assert head_of(run).weight.equal(head_of(first).weight)
    assert (head_of(run).class_scale - 1).abs().max() > 0.01
    directions = [
        torch.nn.functional.normalize(head_of(r).class_weight(torch.float32)) for r in (run, first)
    ]
    torch.testing.assert_close(*directions)


def test_tau_of_zero_is_the_linear_head_and_one_levels_the_norms():
    linear = LinearHead(8, 5, bias=False)
    x = torch.randn(20, 8)
    torch.testing.assert_close(TauNormHead.from_linear(linear, 0.0)(x), linear(x))
    levelled = TauNormHead.from_linear(linear, 1.0).class_weight(torch.float32)
    torch.testing.assert_close(levelled.norm(dim=1), torch.ones(5))


def test_tau_is_the_middle_of_the_best_on_the_held_out_images(on_pixels):
    """Recomputed from the model and the images that were left out of training."""
    run = on_pixels("tau-norm", **{"stages.representation.epochs": 10, "seed": 3})
    head = head_of(run)
    tau = float(head.tau)
    assert any(tau == pytest.approx(t) for t in TAUS)
    assert head.bias is None
    assert run.model.info.prior == "none"

    # A head whose rare class only wins from τ = 0.6 on.
    linear = LinearHead(2, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[10.0, 0.0], [0.0, 1.0]]))
    model = Classifier(torch.nn.Identity(), TauNormHead.from_linear(linear, 0.0))
    features = torch.tensor([[1.0, 0.0], [0.3, 0.8]])
    labels = torch.tensor([0, 1])

    def held_out():
        return features, labels

    start = StageStart("classifier", torch.tensor([9, 2]), {}, held_out, held_out)
    with torch.no_grad():
        choose_tau(model, start)
    right = []
    for t in TAUS:
        logits = TauNormHead.from_linear(linear, t)(features)
        right.append(evaluate(logits, labels, torch.ones(2))["balanced_accuracy"] == 1.0)
    first, last = right.index(True), len(TAUS) - 1 - right[::-1].index(True)
    assert 0 < first < last
    assert float(model.head.tau) == pytest.approx(TAUS[(first + last) // 2])


def test_images_that_tau_is_chosen_on_are_of_every_class_and_never_trained_on(tau_run):
    run = tau_run()
    labels = run.dataset.train.labels
    held_out = run.selection
    counts = torch.bincount(labels, minlength=10)
    assert (torch.bincount(labels[held_out], minlength=10) > 0).equal(counts >= 2)
    assert not set(held_out.tolist()) & set(run.kept.tolist())
    together = len(held_out) + len(run.kept) + len(run.held_out)
    assert together == len(labels)


@pytest.fixture
def tau_run(tmp_path):
    from wcdas.methods import find_method
    from wcdas.processes import Ranks
    from wcdas.run.build import build_run
    from wcdas.run.folder import RunFolder
    from wcdas.run.settings import resolve

    def made():
        config = resolve("tau-norm", "digits-lt", [{"input_size": 8}], {}, None)
        ranks = Ranks(0, 1, torch.device("cpu"))
        digits = open_dataset("digits-lt")
        return build_run(
            config, find_method("tau-norm"), digits, RunFolder(tmp_path / "run"), ranks, 0
        )

    return made


def test_class_means_against_numpy():
    x, y = torch.randn(50, 4), torch.arange(50) % 6
    means, counts = class_means(x, y, 7)
    assert counts.tolist() == [9, 9, 8, 8, 8, 8, 0]
    for j in range(6):
        np.testing.assert_allclose(means[j], x[y == j].double().numpy().mean(0), rtol=1e-6)
    assert means[6].eq(0).all()


def test_ncm_predicts_the_nearest_mean(on_pixels, features):
    run = on_pixels("ncm", epochs=2, **{"calibration.holdout": 0.0})
    x = np.load(features)
    split = wcdas.open_dataset(features)
    kept, labels = split.train.vectors.double().numpy(), split.train.labels.numpy()
    means = np.stack([kept[labels == j].mean(0) for j in range(10)])
    cosine = (x @ means.T) / np.linalg.norm(x, axis=1, keepdims=True)
    cosine /= np.linalg.norm(means, axis=1)
    predicted = run.model.predict(torch.from_numpy(x)).argmax(1)
    assert (predicted.numpy() == cosine.argmax(1)).mean() > 0.999


def test_a_stage_that_trains_nothing_has_no_epochs(on_pixels):
    run = on_pixels("ncm", epochs=3)
    assert [line["stage"] for line in log(run)] == ["representation"] * 3
    written = tomllib.loads((run.path / "run.toml").read_text())["stages"]["classifier"]
    assert written == {"trains": "nothing", "head": "cosine"}


@pytest.mark.parametrize("name", ["ncm", "tau-norm"])
def test_a_run_that_trains_nothing_in_a_stage_is_a_recipe_and_can_be_resumed(
    name, on_pixels, tmp_path
):
    run = on_pixels(name, epochs=2, lr=0.3)
    again = wcdas.train(
        recipe=run.path / "run.toml", out=tmp_path / "again", device="cpu", report=False
    )
    assert again.metrics == run.metrics
    (again.path / "model.safetensors").unlink()
    settings = {"epochs": 2, "lr": 0.3}
    wcdas.train(settings=settings, out=again.path, resume=True, device="cpu", report=False)
    assert (again.path / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("ncm", {"stages.classifier.epochs": 1}, "classifier.epochs has no effect, since nothing"),
        ("ncm", {"stages.classifier.lr": 0.1}, "classifier.lr has no effect"),
        ("tau-norm", {"stages.classifier.sampler": "meta"}, "classifier.sampler has no effect"),
        ("ncm", {"stages.classifier.head": "keep"}, "ncm sets the values of 'cosine' there"),
        ("tau-norm", {"stages.classifier.head": "keep"}, "sets the values of 'tau-norm' there"),
    ],
)
def test_what_has_no_effect_on_it_is_refused(on_pixels, tmp_path, name, setting, message):
    with pytest.raises(InputError, match=message):
        on_pixels(name, epochs=1, **setting)
    assert not list(tmp_path.iterdir())

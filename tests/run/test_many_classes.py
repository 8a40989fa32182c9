"""Runs whose logits are computed some at a time: the same, to rounding, as where they are kept."""

import json

import pytest
import torch
from safetensors.torch import load_file

import wcdas
from wcdas.backbones import create_backbone
from wcdas.data.dataset import FeatureVectors
from wcdas.data.loader import EvalLoader
from wcdas.heads import create_head
from wcdas.methods.classifier import Classifier
from wcdas.run.prediction import predict_split

NUMBERS = ("top1", "top5", "balanced_accuracy", "few", "nll", "ece", "temperature")


def trained(data, method, out, **settings):
    given = {"epochs": 4, "stages.representation.ema": 0.5, "evaluate_every": 2} | settings
    return wcdas.train(data, method, settings=given, out=out, device="cpu")


def logged(run):
    return [json.loads(line) for line in (run.path / "log.jsonl").open()]


@pytest.mark.parametrize("method", ["wcdas-prior", "softmax"])
def test_a_run(method, features, tmp_path, at_a_time):
    kept = trained(features, method, tmp_path / "kept")
    with at_a_time(50, 3):
        run = trained(features, method, tmp_path / "run")
        again = wcdas.evaluate_run(run, device="cpu")
    weights = [load_file(one.path / "model.safetensors") for one in (kept, run)]
    assert all(torch.equal(*(of[name] for of in weights)) for name in weights[0])
    for one, other in zip(logged(kept), logged(run), strict=True):
        assert one.get("test") == pytest.approx(other.get("test"))
    for name in NUMBERS:
        assert run.metrics[name] == pytest.approx(kept.metrics[name], rel=1e-3), name
    # What was seen while it trained is of the weights that it ends with, which are a mean.
    assert logged(run)[-1]["test"]["top1"] == run.metrics["top1"]
    assert {key: run.metrics[key] for key in again} == again
    pages = [json.loads((one.path / "report.json").read_text()) for one in (kept, run)]
    for which in ("mean_own", "mean_other"):
        angles = [page["angles"][which]["few"] for page in pages]
        assert angles[0] == pytest.approx(angles[1], abs=0.02)


def test_a_choice_on_held_out_images(features, tmp_path, at_a_time):
    with at_a_time(50, 3):
        run = trained(features, "tau-norm", tmp_path / "run")
    kept = trained(features, "tau-norm", tmp_path / "kept")
    tau = [float(one.model.classifier.head.tau) for one in (run, kept)]
    assert tau[0] == tau[1]


def test_features_alone_are_looked_at(at_a_time):
    split = FeatureVectors(torch.randn(30, 6), torch.arange(30) % 5, "test")
    model = Classifier(create_backbone("identity", channels=6), create_head("wcdas", 6, 5))
    loading = {"size": 0, "channels": 6, "mean": [], "std": [], "batch_size": 7}
    with at_a_time(4, 2):
        x, scores = predict_split(model, EvalLoader(split, **loading))
    assert scores.inputs is x
    assert torch.equal(x, split.vectors)

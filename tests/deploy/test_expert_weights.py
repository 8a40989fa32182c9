"""Experts weighed on test images: what is said about it, what is refused."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import wcdas
from wcdas import cli
from wcdas.data import open_dataset
from wcdas.deploy.evaluating import view_augmentation, weigh_experts
from wcdas.errors import InputError

WEIGH = wcdas.Correction(aggregate_experts=True)


def train_sade(data: str | Path, out: Path) -> wcdas.Run:
    return wcdas.train(data, "sade", settings={"epochs": 1}, out=out, device="cpu", report=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> wcdas.Run:
    return train_sade("digits-lt", tmp_path_factory.mktemp("runs") / "sade")


def test_the_table_says_what_was_used(run, monkeypatch, capsys):
    arguments = ["wcdas", "evaluate", str(run.path), "--aggregate-experts", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as end:
        cli.main()
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "weights of the experts: 0." in out
    assert "sade, experts weighed on the test images" in out


def test_labels_are_not_looked_at(run):
    digits = open_dataset("digits-lt").test
    wrong = digits.subset(torch.arange(len(digits)))
    wrong.labels[:] = 0
    one, other = (weigh_experts(run.model, split, flip=False) for split in (digits, wrong))
    assert one.equal(other)
    assert run.model.classifier.head.expert_weights.equal(one)


@pytest.mark.parametrize("size", [8, 224])
def test_views_differ_in_place_and_colour(size):
    images = torch.full((1, 3, size, size), 100, dtype=torch.uint8).repeat(20, 1, 1, 1)
    views = view_augmentation(size, flip=True)(images, 0, torch.arange(20))
    assert views.shape == images.shape
    assert (views[0] != views[1]).any()
    assert (view_augmentation(size, flip=True).crop_scale is not None) == (size == 224)


def test_a_model_without_experts(digits_run):
    with pytest.raises(InputError, match="trained by wcdas and has no experts to weigh"):
        wcdas.evaluate_run(digits_run, correction=WEIGH)


def test_feature_vectors_have_no_views(tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", random.normal(size=(60, 5)).astype("float32"))
    np.save(tmp_path / "x_labels.npy", np.arange(60) % 3)
    run = train_sade(tmp_path / "x.npy", tmp_path / "run")
    assert run.model.classifier.head.in_features == 15
    with pytest.raises(InputError, match="two views of every image"):
        wcdas.evaluate_run(run, correction=WEIGH)


def test_norms_are_those_of_one_head(run):
    with pytest.raises(InputError, match="head is several experts'"):
        wcdas.evaluate_run(run, correction=wcdas.Correction(tau_norm=1.0))

"""The folder for the Hub is loaded by those who would load it: wcdas, timm and huggingface_hub."""

import json
import tomllib
from functools import cache

import pytest
import timm
import torch
from huggingface_hub import ModelCard
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

import wcdas
from wcdas.errors import WorkError


@pytest.fixture(scope="module")
def timm_run(pictures, tmp_path_factory):
    """Makes a run with a backbone of timm, on a few pictures."""
    folder = pictures(tmp_path_factory.mktemp("few") / "pictures", china=6, flower=4)

    @cache
    def train(name: str, method: str, neck: str = "none") -> wcdas.Run:
        settings = {"epochs": 1, "backbone.name": name, "input_size": 32, "neck.name": neck}
        out = tmp_path_factory.mktemp("runs") / "run"
        return wcdas.train(
            folder, method, settings=settings, out=out, device="cpu", workers=0, report=False
        )

    return train


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("resnet18", "softmax"),
        ("resnet18", "lws"),
        ("vit_tiny_patch16_224", "softmax"),
        ("convnext_atto", "wcdas"),
    ],
)
def test_timm_loads_the_folder(timm_run, name, method, tmp_path):
    run = timm_run(name, method)
    folder = wcdas.export(run, "hub", tmp_path / "hub").path
    ours, inputs = wcdas.load(run, device="cpu"), torch.randn(3, 3, 32, 32)
    network = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    with torch.no_grad():
        got = network(inputs)
        features = ours.classifier.features(inputs)
        expected = ours.classifier(inputs) if method == "softmax" else features
        torch.testing.assert_close(got, expected)
        bare = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0).eval()
        torch.testing.assert_close(bare(inputs), features)
    again = wcdas.load(folder, device="cpu")
    torch.testing.assert_close(again.logits(inputs), ours.logits(inputs), rtol=0, atol=0)
    assert again.info == ours.info


def test_timm_gets_the_features_before_the_neck(timm_run):
    """Also with a linear head: timm's model has no place for a neck."""
    run = timm_run("resnet18", "softmax", "batch-norm")
    folder = wcdas.export(run, "hub").path
    ours, inputs = wcdas.load(run, device="cpu"), torch.randn(3, 3, 32, 32)
    network = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    with torch.no_grad():
        behind = ours.classifier.backbone.neck(network(inputs))
        torch.testing.assert_close(behind, ours.classifier.features(inputs))
    again = wcdas.load(folder, device="cpu")
    torch.testing.assert_close(again.logits(inputs), ours.logits(inputs), rtol=0, atol=0)
    assert json.loads((folder / "config.json").read_text("utf-8"))["wcdas"]["neck"] == "batch-norm"
    assert "gives the features before the neck" in (folder / "README.md").read_text("utf-8")


def test_timm_knows_the_preprocessing_and_the_names(timm_run, photographs, tmp_path):
    run = timm_run("resnet18", "softmax")
    folder = wcdas.export(run, "hub", tmp_path / "hub").path
    network = timm.create_model(f"local-dir:{folder}", pretrained=True)
    assert list(network.pretrained_cfg["label_names"]) == ["china", "flower"]
    transform = create_transform(**resolve_model_data_config(network))
    picture = Image.fromarray(photographs["china"])
    ours = run.model.preprocess(picture)
    torch.testing.assert_close(transform(picture), ours, rtol=0, atol=1e-5)


def test_a_backbone_of_our_own(odd_run, odd_names, tmp_path):
    done = wcdas.export(odd_run, "hub", tmp_path / "hub")
    assert sorted(path.name for path in done.path.iterdir()) == [
        "README.md", "config.json", "model.safetensors", "run.toml"]  # fmt: skip
    model, inputs = wcdas.load(odd_run, device="cpu"), torch.randn(2, 3, 32, 32)
    again = wcdas.load(done.path, device="cpu")
    torch.testing.assert_close(again.logits(inputs), model.logits(inputs), rtol=0, atol=0)
    config = json.loads((done.path / "config.json").read_text(encoding="utf-8"))
    assert config["wcdas"]["class_names"] == odd_names
    assert config["wcdas"]["preprocessing"]["mode"] == "RGB"


def test_the_hub_reads_the_card(odd_run, tmp_path):
    card = ModelCard.load(wcdas.export(odd_run, "hub", tmp_path / "hub").path / "README.md")
    assert card.data.library_name == "wcdas"
    assert card.data.pipeline_tag == "image-classification"
    values = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert values["few (< 20)"] == pytest.approx(odd_run.metrics["few"], abs=1e-4)
    assert card.data.eval_results[0].dataset_name == 'data "of" <b>odd names'


def test_nobody_learns_where_the_data_lay(odd_run, tmp_path):
    folder = wcdas.export(odd_run, "hub", tmp_path / "hub").path
    table = tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    assert table["data"]["source"] == 'data "of" <b>odd names'
    for file in folder.iterdir():
        assert b"/tmp/" not in file.read_bytes()


def test_the_run_can_be_repeated_from_the_folder(odd_run, tmp_path):
    folder = wcdas.export(odd_run, "hub", tmp_path / "hub").path
    source = tomllib.loads((odd_run.path / "run.toml").read_text(encoding="utf-8"))["data"][
        "source"
    ]
    again = wcdas.train(source, recipe=folder / "run.toml", out=tmp_path / "again", device="cpu",
                        workers=0, report=False)  # fmt: skip
    assert again.metrics["confusion"] == odd_run.metrics["confusion"]


def test_a_model_file_without_its_run(odd_run, tmp_path):
    folder = wcdas.export(odd_run.path / "model.safetensors", "hub", tmp_path / "hub").path
    assert not (folder / "run.toml").exists()
    assert "Not measured: the model came without its run." in (folder / "README.md").read_text()
    assert wcdas.load(folder).class_names == odd_run.model.class_names


def test_a_folder_that_timm_reads_otherwise_is_not_left_behind(timm_run, tmp_path, monkeypatch):
    run = timm_run("resnet18", "softmax")
    monkeypatch.setattr("wcdas.deploy.hub.timm_classifier", lambda *_: "layer4")
    with pytest.raises(WorkError, match="timm cannot load the folder"):
        wcdas.export(run, "hub", tmp_path / "hub")
    assert not list(tmp_path.iterdir())


def test_timm_may_fail_without_a_message(timm_run, tmp_path, monkeypatch):
    run = timm_run("resnet18", "softmax")

    def fail(name, **options):
        if name.startswith("local-dir:"):
            raise AssertionError
        return create_model(name, **options)

    create_model = timm.create_model
    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(WorkError, match=r"timm cannot load the folder: AssertionError$"):
        wcdas.export(run, "hub", tmp_path / "hub")

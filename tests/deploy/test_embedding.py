"""Features of a run, and training on them."""

import pytest
import torch
from safetensors.torch import save_file

import wcdas
from wcdas.backbones import create_backbone
from wcdas.data.dataset import FeatureVectors
from wcdas.errors import InputError


@pytest.fixture(scope="module")
def features(mixed_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("features") / "features.parquet"
    assert wcdas.embed(mixed_run, out=out, device="cpu") == 24 + 15
    return out


def test_features_are_those_of_the_backbone(features, mixed_run, mixed_folder):
    dataset = wcdas.open_dataset(features)
    assert isinstance(dataset.test, FeatureVectors)
    assert dataset.class_names == ["china", "flower", "roof"]
    images = wcdas.open_dataset(mixed_folder)
    assert torch.equal(dataset.test.labels, images.test.labels)
    model = wcdas.load(mixed_run, device="cpu")
    first = model.preprocess(mixed_folder / images.test.name(0))[None]
    with torch.no_grad():
        expected = model.classifier.features(first)[0]
    torch.testing.assert_close(dataset.test.vectors[0], expected, rtol=1e-4, atol=1e-5)


def test_a_head_is_trained_on_features(features, mixed_run, tmp_path):
    run = wcdas.train(
        features, settings={"epochs": 3}, out=tmp_path / "run", device="cpu", report=False
    )
    vectors = wcdas.open_dataset(features).test
    probabilities = run.model.predict(vectors.vectors)
    right = (probabilities.argmax(1) == vectors.labels).double().mean()
    assert right == run.metrics["top1"]
    with pytest.raises(InputError, match="takes vectors of 64 numbers, not images"):
        run.model.predict("a.png")
    with pytest.raises(InputError, match=r"shape \(2, 3\); expected \(N, 64\)"):
        run.model.predict(torch.zeros(2, 3))
    with pytest.raises(InputError, match="takes images, but"):
        wcdas.evaluate_run(mixed_run, features)
    with pytest.raises(InputError, match="takes feature vectors, but digits-lt holds images"):
        wcdas.evaluate_run(run, "digits-lt")


@pytest.mark.parametrize("name", ["missing/features.parquet", "features.csv", "run.parquet"])
def test_a_file_that_cannot_be_written(mixed_run, tmp_path, name):
    (tmp_path / "run.parquet").mkdir()
    with pytest.raises(InputError, match=r"cannot be written|ends in \.parquet"):
        wcdas.embed(mixed_run, out=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]


def test_a_file_is_replaced_only_if_asked(mixed_run, tmp_path):
    out = tmp_path / "features.parquet"
    out.write_text("the last one")
    with pytest.raises(InputError, match=r"features\.parquet exists; replace it with --overwrite"):
        wcdas.embed(mixed_run, out=out, device="cpu")
    assert out.read_text() == "the last one"
    wcdas.embed(mixed_run, out=out, device="cpu", overwrite=True)
    assert len(wcdas.open_dataset(out).train) == 24


@pytest.fixture
def weights(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_file(create_backbone("test_vit", input_size=64).state_dict(), tmp_path / "w.safetensors")
    return {"backbone.weights": tmp_path / "w.safetensors", "input_size": 64}


def test_a_backbone_without_a_run(mixed_folder, weights, tmp_path):
    out = tmp_path / "features.parquet"
    assert wcdas.embed("test_vit", mixed_folder, out, settings=weights, device="cpu") == 39
    dataset = wcdas.open_dataset(out)
    settings = weights | {"frozen": True, "backbone.name": "test_vit", "epochs": 1}
    run = wcdas.train(
        mixed_folder, settings=settings, out=tmp_path / "run", device="cpu", workers=0, report=False
    )
    images = wcdas.open_dataset(mixed_folder)
    assert dataset.class_names == images.class_names
    assert torch.equal(dataset.test.labels, images.test.labels)
    inputs = torch.stack([run.model.preprocess(mixed_folder / p) for p in images.test.paths])
    with torch.no_grad():
        expected = run.model.classifier.features(inputs)
    torch.testing.assert_close(dataset.test.vectors, expected, rtol=1e-4, atol=1e-5)


def test_what_a_backbone_cannot_embed(features, mixed_run, weights, tmp_path):
    with pytest.raises(InputError, match="holds feature vectors already; expected images"):
        wcdas.embed("test_vit", features, tmp_path / "f.parquet", settings=weights)
    with pytest.raises(InputError, match=r"--set got 'input_size'; .* takes data\.… alone"):
        wcdas.embed(mixed_run, out=tmp_path / "f.parquet", settings={"input_size": 64})
    assert not (tmp_path / "f.parquet").exists()

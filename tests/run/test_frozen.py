"""Frozen features: methods train on them, and what comes out is a model of images."""

import io
import json
import shutil
import tomllib
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file

import wcdas
from wcdas.backbones import create_backbone
from wcdas.backbones.base import FrozenBackbone
from wcdas.data.feature_store import store_root
from wcdas.errors import InputError
from wcdas.evaluation import evaluate
from wcdas.processes import Ranks
from wcdas.run import frozen
from wcdas.run.frozen import compute_features, freeze
from wcdas.run.settings import read_request
from wcdas.sweeps.folder import SweepFolder

REAL = Path(__file__).parents[3] / "shared" / "weights" / "tf_efficientnet_lite0.safetensors"
CPU = Ranks(0, 1, torch.device("cpu"))
METHODS = ["wcdas-prior", "softmax", "crt", "tau-norm", "ldam-drw", "balms", "ride-wcdas", "sade"]
METHODS += ["oltr", "meta-weight-net", "center-loss"]


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def random_weights(name: str, path: Path, seed: int = 0, **options: int) -> Path:
    torch.manual_seed(seed)
    save_file(create_backbone(name, **options).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> dict[str, object]:
    """A network of the package, whose images are normalised as the data says."""
    weights = random_weights("resnet8", tmp_path_factory.mktemp("weights") / "resnet8.safetensors")
    return {"frozen": True, "backbone.name": "resnet8", "backbone.weights": weights}


@pytest.fixture(scope="module")
def timm_network(tmp_path_factory) -> dict[str, object]:
    """A network with a normalisation of its own."""
    weights = tmp_path_factory.mktemp("weights") / "test_resnet.safetensors"
    random_weights("test_resnet", weights, input_size=32)
    return {"frozen": True, "backbone.name": "test_resnet", "backbone.weights": weights}


@pytest.fixture
def folder(pictures, tmp_path) -> Path:
    pictures(tmp_path / "pictures" / "train", china=6, flower=5)
    pictures(tmp_path / "pictures" / "test", side=36, china=3, flower=3)  # other cuts
    return tmp_path / "pictures"


def train(data, out, settings, method="softmax", **more) -> tuple[wcdas.Run, str]:
    said = io.StringIO()
    run = wcdas.train(
        data,
        method,
        settings={"epochs": 2, "batch_size": 4, **settings},
        out=out,
        device="cpu",
        workers=0,
        console=Console(file=said, width=200),
        **{"report": False, **more},
    )
    return run, said.getvalue()


def computed(data, settings) -> frozen.FrozenDataset:
    dataset = wcdas.open_dataset(data)
    config, _ = read_request(None, settings, "softmax").resolve(dataset, data, "cpu", False)
    features = freeze(config, dataset, workers=0)
    compute_features(features, CPU, 0, None)
    return features


def test_a_frozen_run_ends_with_a_model_of_images(mixed_folder, network, tmp_path):
    settings = network | {"neck.name": "batch-norm"}
    run, said = train(mixed_folder, tmp_path / "run", settings, report=True)
    heard = io.StringIO()
    console = Console(file=heard, width=200)
    found = wcdas.evaluate_run(run, device="cpu", console=console)
    assert found == {key: run.metrics[key] for key in found}  # to the last bit
    total = found["test_images"]
    assert f"features: {total} of {total} from the store" in heard.getvalue()
    assert "softmax: resnet8 at 32 px, frozen, with neck batch-norm and head linear, cpu" in said
    assert "frozen: resnet8 at 32 px, 64 features\n" in said
    assert "39 from the store, " in said
    test = wcdas.open_dataset(mixed_folder).test
    files = [mixed_folder / test.name(i) for i in range(len(test))]
    p = run.model.predict(files)
    assert float((p.argmax(1) == test.labels).double().mean()) == run.metrics["top1"]
    assert "data:image/" in (run.path / "report.html").read_text()  # of confused images
    assert wcdas.embed(run, out=tmp_path / "f.parquet", device="cpu") == 39


@pytest.mark.parametrize("method", ["softmax", "ride"])
def test_the_network_stays_as_it_was_and_is_weights_again(method, folder, network, tmp_path):
    run, _ = train(folder, tmp_path / "run", network | {"neck.name": "linear"}, method)
    backbone = run.model.classifier.backbone
    assert isinstance(backbone, FrozenBackbone) == (method == "ride")  # with experts behind it
    ours = (backbone.frozen if method == "ride" else backbone).state_dict()
    for file in (network["backbone.weights"], run.path / "model.safetensors"):
        theirs = create_backbone("resnet8", weights=file).state_dict()
        assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_features_are_those_of_evaluation(mixed_folder, network, tmp_path):
    features = computed(mixed_folder, network)
    run, _ = train(mixed_folder, tmp_path / "run", network)
    images = wcdas.open_dataset(mixed_folder)
    inputs = torch.stack([run.model.preprocess(mixed_folder / p) for p in images.train.paths])
    with torch.no_grad():
        expected = run.model.classifier.features(inputs)
    torch.testing.assert_close(features.train.vectors, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_methods_on_frozen_features(method, mixed_folder, network, tmp_path):
    settings = network | {"neck.name": "linear", "neck.features": 8, "views": 2}
    if method == "sade":
        settings |= {"calibration.holdout": 0.2}
    run, _ = train(mixed_folder, tmp_path / "run", settings, method)
    assert wcdas.evaluate_run(run, device="cpu")["confusion"] == run.metrics["confusion"]


@pytest.mark.parametrize("method", ["paco", "hybrid-contrastive-wcdas"])
def test_a_method_that_trains_features_is_refused_at_once(method, folder, network, tmp_path):
    with pytest.raises(InputError, match="trains the features, but here they are given"):
        train(folder, tmp_path / "run", network, method)
    assert not store_root().exists()
    assert not (tmp_path / "run").exists()


def test_changed_added_and_removed_images_are_noticed(folder, timm_network, tmp_path):
    first, said = train(folder, tmp_path / "1", timm_network)
    assert "features: 0 of 17 from the store, 17 computed" in said
    same, said = train(folder, tmp_path / "2", timm_network)
    assert "features: 17 of 17 from the store (" in said
    weights = [(run.path / "model.safetensors").read_bytes() for run in (first, same)]
    assert weights[0] == weights[1]
    Image.new("RGB", (40, 40), "red").save(folder / "train" / "china" / "1.png")
    (folder / "train" / "china" / "0.jpg").unlink()
    Image.new("RGB", (40, 40), "blue").save(folder / "train" / "flower" / "new.png")
    _, said = train(folder, tmp_path / "3", timm_network)
    assert "features: 15 of 17 from the store, 2 computed" in said
    changed = computed(folder, timm_network)
    shutil.rmtree(store_root())
    again = computed(folder, timm_network)
    assert torch.equal(changed.train.vectors, again.train.vectors)
    assert torch.equal(changed.test.vectors, again.test.vectors)


def test_an_image_of_the_same_name_and_length_is_another(folder, timm_network):
    file = folder / "train" / "china" / "first.bmp"
    Image.new("RGB", (40, 40), "white").save(file)
    before = computed(folder, timm_network)
    length = file.stat().st_size
    Image.new("RGB", (40, 40), "red").save(file)
    assert file.stat().st_size == length
    after = computed(folder, timm_network)
    same = (before.train.vectors == after.train.vectors).all(1)
    index = after.images.train.paths.index("train/china/first.bmp")
    assert (~same).nonzero().flatten().tolist() == [index]


def test_a_view_depends_on_its_image_alone(folder, timm_network, tmp_path):
    many = computed(folder, timm_network | {"views": 3})
    assert many.train.vectors.shape == (11, 3, many.channels)
    assert torch.equal(many.train.vectors[:, 0], computed(folder, timm_network).train.vectors)
    views = many.train.vectors.unbind(1)
    assert all(not torch.equal(a, b) for a, b in pairwise(views))
    shutil.rmtree(store_root())
    for name in ("0.jpg", "1.png"):
        (folder / "train" / "china" / name).unlink()
    fewer = computed(folder, timm_network | {"views": 3})
    torch.testing.assert_close(fewer.train.vectors, many.train.vectors[2:], rtol=1e-4, atol=1e-5)


def test_another_network_size_or_augmentation_is_another_store(folder, timm_network, tmp_path):
    other = random_weights("test_resnet", tmp_path / "other.safetensors", seed=1, input_size=32)
    settings = [
        timm_network,
        timm_network | {"backbone.weights": other},
        timm_network | {"input_size": 24},
        timm_network | {"views": 2},
        timm_network | {"views": 2, "augment.flip": False},
        timm_network | {"evaluation_crop": 0.5},
    ]
    for given in settings:
        computed(folder, given)
    # The first view of those with two is that of the first.
    assert len(list(store_root().iterdir())) == 6


def test_arrays_are_known_by_their_pixels(network, tmp_path):
    grey = random_weights("resnet8", tmp_path / "grey.safetensors", channels=1)
    settings = network | {"backbone.weights": grey, "input_size": 16}
    _, said = train("digits-lt", tmp_path / "1", settings)
    assert "features: 0 of 831 from the store" in said
    _, said = train("digits-lt", tmp_path / "2", settings)
    assert "features: 831 of 831 from the store" in said


def test_a_kill_loses_only_what_was_not_written(folder, timm_network, monkeypatch):
    whole = computed(folder, timm_network)
    shutil.rmtree(store_root())
    calls, real = [], frozen.FeatureStore.add

    def add(store, digests, features):
        if len(calls) == 2:
            store.digests, store.features = [], []  # what a killed process does not write
            raise SystemExit
        calls.append(len(digests))
        real(store, digests, features)

    monkeypatch.setattr("wcdas.data.feature_store.SECONDS", -1.0)
    monkeypatch.setattr(frozen.FeatureStore, "add", add)
    with pytest.raises(SystemExit):
        computed(folder, timm_network)
    monkeypatch.setattr(frozen.FeatureStore, "add", real)
    again = computed(folder, timm_network)
    assert torch.equal(again.train.vectors, whole.train.vectors)
    assert torch.equal(again.test.vectors, whole.test.vectors)


@pytest.mark.slow
def test_a_run_that_is_killed_ends_with_the_same_model(
    folder, timm_network, tmp_path, start, written
):
    settings = timm_network | {"frozen": "true", "views": 2, "epochs": 3, "batch_size": 4}
    command = ["train", folder, "--no-report", "--workers", "0", "--set"]
    command += [f"{key}={value}" for key, value in settings.items()]
    told = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert start(*command, "--out", whole, environment=told).status() == 0
    shutil.rmtree(store_root())
    options = {"environment": told, "checkpoint_seconds": 0.0}
    assert start(*command, "--out", run, happens=("kill", 1, 1), **options).status() == -9
    last = start("train", "--out", run, "--resume", "--no-report", "--workers", "0", **options)
    assert last.status() == 0, last.output.read_text()
    assert "28 of 28 from the store" in last.output.read_text()
    written.assert_same(run, whole)


def test_ctrl_c_keeps_the_features_and_leaves_no_run(folder, network, tmp_path, monkeypatch):
    real = frozen.FeatureStore.add

    def add(store, digests, features):
        real(store, digests, features)
        raise KeyboardInterrupt

    monkeypatch.setattr(frozen, "images_at_a_time", lambda size, device: 4)
    monkeypatch.setattr(frozen.FeatureStore, "add", add)
    with pytest.raises(wcdas.WorkError, match="stopped; the features so far are kept"):
        train(folder, tmp_path / "run", network)
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(frozen.FeatureStore, "add", real)
    _, said = train(folder, tmp_path / "run", network)
    assert "features: 4 of 17 from the store, 13 computed" in said


def test_a_sweep_computes_features_once(folder, network, tmp_path):
    said = io.StringIO()
    settings = network | {"epochs": 2, "batch_size": 4}
    sweep = wcdas.sweep(
        folder,
        "softmax,crt,ride",
        2,
        settings=settings,
        out=tmp_path / "sweep",
        device="cpu",
        workers=0,
        report=False,
        console=Console(file=said, width=200),
    )
    assert not sweep.failed
    assert said.getvalue().count("frozen: resnet8") == 1
    assert said.getvalue().count("  weights: file ") == 1
    model = SweepFolder(sweep.path).path / "ride-s1" / "model.safetensors"
    assert wcdas.load(model, device="cpu").predict(folder / "test" / "china" / "0.jpg").shape == (
        1,
        2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wcdas-prior", "ride"])
def test_a_frozen_run_is_exported(method, folder, timm_network, tmp_path):
    run, _ = train(folder, tmp_path / "run", timm_network, method)
    for form in ("onnx", "torch", "hub", "card"):
        done = wcdas.export(run, form)
        assert done.path.exists()
    file = folder / "test" / "china" / "0.jpg"
    p = wcdas.load(tmp_path / "run" / "hub", device="cpu").predict(file)
    torch.testing.assert_close(p, run.model.predict(file))
    library = json.loads((tmp_path / "run" / "hub" / "config.json").read_text())
    assert ("architecture" in library) == (method == "wcdas-prior")  # which timm loads


def test_a_frozen_run_is_a_recipe(folder, network, tmp_path):
    run, _ = train(folder, tmp_path / "1", network)
    again = wcdas.train(
        recipe=run.path / "run.toml", out=tmp_path / "2", device="cpu", workers=0, report=False
    )
    assert again.metrics == run.metrics
    other = wcdas.train(
        recipe=run.path / "run.toml",
        method="wcdas",
        out=tmp_path / "3",
        device="cpu",
        workers=0,
        report=False,
    )
    assert other.metrics["method"] == "wcdas"
    assert "frozen = true" in (other.path / "run.toml").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"views": 3, "frozen": False}, "views is 3, but features are not frozen; add --frozen"),
        ({"views": 0}, "views is 0; expected at least 1"),
        ({"backbone.weights": ""}, "frozen is true, but backbone.weights is empty"),
        ({"backbone.weights": "pretrained"}, "no pretrained weights of 'resnet8'"),
        (
            {"stages.representation.augment": "strong"},
            "augment has no effect, since every image is seen as it is; for others set views to 2",
        ),
        ({"views": 2, "stages.representation.augment": "none"}, "the augmentation 'none' alone"),
        (
            {"evaluation_size": 40, "views": 2},
            "evaluation_size is 40, but frozen features are of one",
        ),
        ({"evaluation_crop": 0.9}, "evaluation_crop has no effect, since images of"),
        ({"cutmix": 1.0, "stages.representation.cutmix": 1.0}, "features are no images"),
    ],
)
def test_what_is_refused(settings, message, folder, network, tmp_path):
    settings = dict(settings)
    settings.pop("cutmix", None)
    with pytest.raises(InputError, match=message):
        train(folder, tmp_path / "run", network | settings)
    assert not (tmp_path / "run").exists()


def test_stages_share_the_views(folder, network, tmp_path):
    settings = network | {"views": 2, "stages.classifier.augment": "strong"}
    message = "the stages name the augmentation 'standard' and 'strong'; expected one for all"
    with pytest.raises(InputError, match=message):
        train(folder, tmp_path / "run", settings, "crt")
    settings |= {"stages.classifier.augment": "none"}
    train(folder, tmp_path / "run", settings, "crt")


def test_features_are_frozen_already(features, tmp_path):
    with pytest.raises(InputError, match="frozen has no effect, since features are no images"):
        train(features, tmp_path / "run", {"frozen": True})


@pytest.mark.skipif(not REAL.exists(), reason="needs real weights")
def test_real_weights_tell_two_photographs_apart(folder, tmp_path):
    settings = {"frozen": True, "backbone.name": "tf_efficientnet_lite0", "epochs": 20}
    settings |= {"backbone.weights": REAL, "input_size": 128}
    run, _ = train(folder, tmp_path / "run", settings)
    assert run.metrics["top1"] == 1.0


def test_the_page_says_what_was_frozen_and_not_what_was_not_done(
    folder, network, tmp_path, monkeypatch
):
    """Where the weights came from, and nothing on mirroring, since every image is seen as it is."""
    monkeypatch.setattr("wcdas.run.automatic.PASSES_ON_A_CPU", 0)  # frozen unasked
    settings = {key: value for key, value in network.items() if key != "frozen"} | {"epochs": 1}
    run = wcdas.train(folder, settings=settings, out=tmp_path / "run", device="cpu")
    page = " ".join((run.path / "report.html").read_text("utf-8").split())
    weights = network["backbone.weights"]
    assert f"the network started from file {weights} and was not trained" in page
    assert "Mirroring" not in page


def test_runs_of_a_sweep_say_where_their_weights_came_from(folder, network, tmp_path):
    settings = network | {"epochs": 1, "batch_size": 4}
    given = {"device": "cpu", "workers": 0, "report": False, "out": tmp_path / "sweep"}
    done = wcdas.sweep(folder, "tau-norm", 1, settings=settings, **given)
    table = SweepFolder(done.path).path / "tau-norm-s0" / "run.toml"
    info = tomllib.loads(table.read_text())["info"]
    assert info["weights"] == f"file {network['backbone.weights']}"
    assert "mirroring" not in info["data"]
    card = wcdas.export(done.path / "tau-norm-s0", "card", tmp_path / "card.md")
    assert "mirrored" not in card.path.read_text()


@pytest.mark.parametrize("centre", [0.6, 1.0])
def test_arrays_are_predicted_as_they_were_measured(folder, timm_network, tmp_path, centre):
    """From 112 pixels on the centre is cut out, of images in a table too."""
    rows = []
    for split in ("train", "test"):
        for c, name in enumerate(("china", "flower")):
            for file in sorted((folder / split / name).iterdir()):
                picture = io.BytesIO()
                Image.open(file).resize((32, 32)).save(picture, "PNG")
                rows.append((split, picture.getvalue(), c))
    table = tmp_path / "table"
    table.mkdir()
    for split in ("train", "test"):
        own = [{"image": {"bytes": data}, "label": c} for s, data, c in rows if s == split]
        pq.write_table(pa.Table.from_pylist(own), table / f"{split}.parquet")
    settings = timm_network | {"input_size": 128, "evaluation_crop": centre}
    run, _ = train(table, tmp_path / "run", settings)
    model, tested = run.model, [(data, c) for split, data, c in rows if split == "test"]
    inputs = torch.stack([model.preprocess(Image.open(io.BytesIO(data))) for data, _ in tested])
    metrics = evaluate(model.logits(inputs), torch.tensor([c for _, c in tested]), [6, 5])
    assert metrics["nll"] == pytest.approx(run.metrics["nll"], rel=0.02)

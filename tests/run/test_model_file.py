"""A model file holds all that is needed, and nothing else is taken for one."""

import json
import math
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import wcdas
from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.methods.classifier import Classifier
from wcdas.run.model_file import ModelInfo, load_model, save_model


def info(**changes):
    values = {
        "backbone": "resnet32",
        "head": "wcdas",
        "head_options": {"scale": 30.0, "per_class": False},
        "class_names": ["ä", "b", "c"],
        "class_counts": [5, 3, 1],
        "channels": 1,
        "input_size": 8,
        "mean": [0.1],
        "std": [0.3],
        "temperature": 1.25,
        "prior": "uniform",
        "method": "wcdas",
        "dataset": "digits-lt",
    }
    return ModelInfo(**(values | changes))


@pytest.fixture
def file(tmp_path):
    torch.manual_seed(0)
    backbone = create_backbone("resnet32", channels=1)
    head = create_head("wcdas", backbone.num_features, 3, scale=30.0, per_class=False)
    save_model(tmp_path / "model.safetensors", Classifier(backbone, head), info())
    return tmp_path / "model.safetensors"


def test_round_trip(file):
    torch.manual_seed(0)
    head_free = create_backbone("resnet32", channels=1)
    model, facts = load_model(file)
    assert facts == info()
    assert not model.training
    assert model.head.scale == 30.0
    x = torch.randn(2, 1, 8, 8)
    assert model.features(x).equal(head_free.eval()(x))


def test_what_computed_the_loss_is_no_part_of_a_model(tmp_path):
    settings = {"head.engine": "chunked", "epochs": 1, "backbone.name": "resnet8"}
    run = wcdas.train("digits-lt", "wcdas", settings=settings, out=tmp_path / "run", report=False)
    model, facts = load_model(run.path / "model.safetensors")
    assert "engine" not in facts.head_options
    assert model.head.engine == "auto"


def rewritten(file, metadata):
    save_file(load_file(file), file, metadata)
    return file


def test_a_foreign_file(file):
    with pytest.raises(InputError, match=r"was not written by wcdas; expected a run's model"):
        load_model(rewritten(file, {"format": "pt"}))
    with pytest.raises(InputError, match="was not written by wcdas"):
        load_model(rewritten(file, None))


@pytest.mark.parametrize("format", [0, 5, None])
def test_another_format(file, format):
    facts = asdict(info()) | {"format": format}
    with pytest.raises(InputError, match=f"has model format {format}; this version reads 1 to 4"):
        load_model(rewritten(file, {"wcdas": json.dumps(facts)}))


@pytest.mark.parametrize("length", [0, 5, 1000, -10])
def test_a_truncated_file(file, length):
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(InputError, match="cannot be read as a model"):
        load_model(file)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read as a model"):
        load_model(tmp_path / "missing.safetensors")


@pytest.mark.parametrize(
    "metadata",
    [
        "no JSON",
        json.dumps({"format": 1}),
        json.dumps(asdict(info()) | {"surprise": 1}),
        json.dumps(asdict(info(class_names=["a", "b"]))),
        json.dumps(asdict(info(backbone="resnet10"))),
        json.dumps(asdict(info(head="linear", head_options={}))),
    ],
)
def test_metadata_that_does_not_fit(file, metadata):
    with pytest.raises(InputError, match="damaged"):
        load_model(rewritten(file, {"wcdas": metadata}))


def test_weights_of_no_classifier(file, tmp_path):
    other = tmp_path / "other.safetensors"
    save_file({"x": torch.ones(2)}, other, {"wcdas": json.dumps(asdict(info()))})
    with pytest.raises(InputError, match="damaged"):
        load_model(other)


def test_the_file_names_no_python_objects(file):
    with safe_open(file, "pt") as opened:
        assert set(json.loads(opened.metadata()["wcdas"])) == set(asdict(info()))


def test_with_a_neck(tmp_path):
    facts, path = info(neck="linear", neck_features=12), tmp_path / "model.safetensors"
    backbone = create_backbone("resnet32", channels=1).attach_neck("linear", 12)
    head = create_head("wcdas", 12, 3, scale=30.0, per_class=False)
    x = torch.randn(4, 1, 8, 8)
    backbone(x)  # batch norm has seen something
    save_model(path, Classifier(backbone, head), facts)
    model, read = load_model(path)
    assert read == facts
    assert model.features(x).equal(backbone.eval()(x))
    other = asdict(facts) | {"neck_features": 13}
    with pytest.raises(InputError, match="damaged, its parts do not fit"):
        load_model(rewritten(path, {"wcdas": json.dumps(other)}))


def test_a_file_of_the_first_format(tmp_path):
    """It knows neither necks nor units of the head's parameters, and predicts as it did."""
    backbone = create_backbone("resnet32", channels=1)
    x, weight, w_rho = torch.randn(4, 1, 8, 8), torch.randn(3, 64), torch.tensor([-2.0, 0.0, 3.0])
    tensors = {f"backbone.{name}": value for name, value in backbone.state_dict().items()}
    tensors |= {"head.weight": weight, "head.w_rho": w_rho, "head.w_scale": torch.tensor([5.0])}
    later = ("neck", "neck_features", "centre")
    facts = {k: v for k, v in asdict(info(head_options={})).items() if k not in later}
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, {"wcdas": json.dumps(facts | {"format": 1})})
    model, read = load_model(path)
    assert (read.format, read.neck, read.centre) == (4, "none", 0.875)
    cosine = F.normalize(backbone.eval()(x)) @ F.normalize(weight).mT
    rho, s = w_rho.sigmoid(), F.softplus(torch.tensor(5.0)) + 1
    z = s * (1 - rho**2) / (2 * math.pi * (1 + rho**2 - 2 * rho * cosine))
    torch.testing.assert_close(model(x), z)
    save_model(path, model, read)
    torch.testing.assert_close(load_model(path)[0](x), z)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"temperature": 0}, "temperature 0"),
        ({"temperature": math.nan}, "expected a number"),
        ({"temperature": "1"}, "expected a number"),
        ({"input_size": 10_000_000}, "input size 10000000"),
        ({"input_size": -1}, "input size -1"),
        ({"centre": 0}, "a centre of 0"),
        ({"class_names": [1, 2, 3]}, "expected a text"),
        ({"class_names": ["a", "a", "c"]}, "the same class name twice"),
        ({"class_counts": [5, 3]}, "2 class counts"),
        ({"class_counts": [5, 3, -1]}, "a class count below 0"),
        ({"std": [0]}, "a standard deviation of 0"),
        ({"mean": [0.1] * 4}, "4 means"),
        ({"channels": 2}, "2 channels"),
        ({"channels": True}, "expected a whole number"),
        ({"prior": "none of these"}, "prior"),
        ({"head_options": []}, "expected a table"),
        ({"head_options": {"scale": "large"}}, None),
        ({"head_options": {"surprise": 1}}, None),
        ({"neck": "unknown"}, None),
        ({"neck_features": 10**12, "neck": "linear"}, "neck"),
        ({"method": "unknown", "built_by_method": True}, None),
        ({"options": {"experts": 10**9}, "method": "ride", "built_by_method": True}, None),
        ({"backbone": "../../etc"}, None),
    ],
)
def test_metadata_of_a_stranger(file, changes, told):
    facts = asdict(info()) | changes
    with pytest.raises(InputError, match=told) as refused:
        load_model(rewritten(file, {"wcdas": json.dumps(facts)}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["[]", "3", "null", "[" * 100_000, '{"format": 3}'])
def test_metadata_that_is_no_table(file, text):
    with pytest.raises(InputError, match="damaged"):
        load_model(rewritten(file, {"wcdas": text}))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_no_numbers(file, bad):
    tensors = load_file(file)
    tensors["head.weight"][0, 0] = bad
    save_file(tensors, file, {"wcdas": json.dumps(asdict(info()))})
    with pytest.raises(InputError, match=r"head\.weight holds NaN or infinite numbers"):
        load_model(file)


@pytest.mark.parametrize("names", ["[]", '{"a": 3}', "{"])
def test_odd_names_of_tensors(file, names):
    facts = {"wcdas": json.dumps(asdict(info())), "names": names}
    with pytest.raises(InputError, match="damaged"):
        load_model(rewritten(file, facts))

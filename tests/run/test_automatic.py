"""What is decided for data, device and weights where nobody said otherwise."""

import pytest
import torch

from wcdas.backbones import WeightsUnavailable
from wcdas.data.dataset import ArrayImages
from wcdas.data.sources.assembly import assemble
from wcdas.run import automatic as module
from wcdas.run.automatic import FINE_TUNING, automatic
from wcdas.run.settings import resolve


def images(size):
    pixels = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    split = ArrayImages(pixels, torch.tensor([0, 0, 1, 1]), "here")
    return assemble("own", ["a", "b"], split, split, input_size=size, channels=3, description={})


def decided(size, chosen, method="wcdas-prior", dataset="own", device="cpu"):
    table, notes = automatic(images(size), device, chosen)
    return resolve(method, dataset, [{"backbone": chosen}, {}], table, None), notes


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("weights", ["file.pth", "pretrained"])
def test_weights_are_fine_tuned_at_any_size(size, weights):
    config, notes = decided(size, {"name": "resnet18", "weights": weights}, "softmax-two-stage")
    assert (config.backbone.name, config.backbone.weights, notes) == ("resnet18", weights, [])
    assert {stage.lr for stage in config.stages.values()} == {3e-4, 0.01}
    assert [stage.epochs for stage in config.stages.values()] == [30, 10]


def test_mixup_from_scratch_and_none_with_weights():
    mixup = [
        decided(32, chosen)[0].stages["representation"].mixup
        for chosen in ({}, {"weights": "file.pth"})
    ]
    assert mixup == [0.4, 0.0]


@pytest.mark.parametrize("dataset", ["cifar100-lt", "inat2018"])
def test_a_shipped_recipe_is_from_scratch_unless_weights_are_given(dataset):
    scratch, _ = decided(224, {"weights": ""}, dataset=dataset)
    tuned, _ = decided(224, {"weights": "file.pth"}, dataset=dataset)
    assert (scratch.backbone.weights, scratch.stages["representation"].epochs) == ("", 200)
    stage = tuned.stages["representation"]
    assert FINE_TUNING["stages"]["representation"].items() <= vars(stage).items()
    assert tuned.backbone.name == scratch.backbone.name


def test_from_scratch_by_choice_is_at_the_rate_of_that():
    config, _ = decided(224, {"weights": ""})
    assert (config.backbone.name, config.stages["representation"].lr) == ("resnet50", 0.2)


@pytest.mark.parametrize(
    ("device", "chosen", "name", "size"),
    [
        ("cpu", {}, "resnet32", 64),
        ("cuda", {}, "resnet50", 0),
        ("cpu", {"name": "resnet18"}, "resnet18", 0),
    ],
)
def test_weights_that_cannot_be_had(monkeypatch, device, chosen, name, size):
    def none_here(*args, **options):
        raise WeightsUnavailable("no network")

    monkeypatch.setattr(module, "create_backbone", none_here)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: False)
    config, (note,) = decided(224, chosen, device=device)
    assert note.startswith("no pretrained weights can be had, so training starts from scratch")
    assert (config.backbone.name, config.backbone.weights) == (name, "")
    assert (config.input_size, config.stages["representation"].lr) == (size, 0.2)

"""What is decided for data, device and weights where nobody said otherwise."""

from dataclasses import replace

import pytest
import torch

from wcdas.backbones import WeightsUnavailable
from wcdas.data.dataset import ArrayImages
from wcdas.data.sources.assembly import assemble
from wcdas.errors import InputError
from wcdas.run import automatic as module
from wcdas.run.automatic import fine_tuning
from wcdas.run.settings import read_request


def images(side, count=4, name="own"):
    pixels = torch.zeros(count, 3, 2, 2, dtype=torch.uint8)
    split = ArrayImages(pixels, torch.arange(count) % 2, "here")
    given = {"input_size": 32 if side <= 48 else 64 if side <= 112 else 224, "image_side": side}
    return assemble(name, ["a", "b"], split, split, channels=3, description={}, **given)


def decided(side, settings=None, method="wcdas-prior", name="own", device="cpu", count=4):
    request = read_request(None, settings or {}, method)
    return request.resolve(images(side, count, name), name, device, skip_bad=False)


@pytest.fixture
def weights(monkeypatch):
    """Say of which networks pretrained weights can be had."""

    def of(*names):
        def build(name):
            if name not in names:
                raise WeightsUnavailable("no weights: no network", "no network")

        monkeypatch.setattr(module, "check_pretrained", build)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: False)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 0))

    return of


FILE = {"backbone.name": "resnet18", "backbone.weights": "file.pth"}


@pytest.mark.parametrize(
    ("settings", "side", "classes", "expected"),
    [
        (FILE | {"frozen": True, "batch_size": 16}, 64, 12, "a few feature vectors"),
        (FILE | {"frozen": True, "batch_size": 128}, 64, 100, ""),
        (FILE | {"frozen": False}, 64, 12, ""),
        ({"backbone.weights": ""}, 8, 12, "8 pixels"),
        ({"backbone.weights": ""}, 64, 12, ""),
    ],
)
def test_short_steps_have_one_thread(settings, side, classes, expected, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(module, "choose_threads", lambda short: (1, short))
    config, _ = decided(side, settings)
    if side == 8:
        config = replace(config, input_size=8)
    assert module.threads_for(config, "cpu", classes) == (1, expected)
    assert module.threads_for(config, "cuda", classes) == (None, "")


@pytest.mark.parametrize(
    ("side", "size"), [(8, 64), (32, 128), (64, 128), (150, 160), (200, 192), (900, 224)]
)
@pytest.mark.parametrize("given", ["file.pth", "pretrained"])
def test_weights_are_fine_tuned_at_a_size_that_suits_the_images(side, size, given):
    config, _ = decided(side, FILE | {"backbone.weights": given}, "softmax-two-stage")
    assert (config.backbone.name, config.backbone.weights) == ("resnet18", given)
    assert config.input_size == size
    assert 1.1 < config.evaluated_at / size < 1.4 or size == 64 == config.evaluated_at
    first, second = config.stages.values()
    assert (first.algorithm, first.lr, second.algorithm) == ("adamw", 6e-4, "sgd")


@pytest.mark.parametrize(("side", "size"), [(20, 160), (32, 224), (128, 224), (900, 224)])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_frozen_network_sees_the_size_that_it_knows(weights, side, size, device):
    weights("resnet18")
    given = {"backbone.name": "resnet18", "backbone.weights": "pretrained", "frozen": True}
    config, _ = decided(side, given, device=device)
    assert (config.input_size, config.evaluated_at, config.evaluation_crop) == (size, size, 1.0)
    config, _ = decided(side, given | {"input_size": 96}, device=device)
    assert config.input_size == 96


@pytest.mark.parametrize(
    ("side", "size"), [(32, 160), (64, 160), (128, 160), (150, 192), (600, 224)]
)
def test_a_gpu_sees_images_a_quarter_larger(weights, side, size):
    weights("resnet18")
    config, _ = decided(side, {"backbone.name": "resnet18"}, device="cuda")
    assert (config.input_size, config.frozen) == (size, False)


def test_a_network_made_for_one_size_sees_and_is_evaluated_at_it():
    config, _ = decided(64, FILE | {"backbone.name": "vit_tiny_patch16_224"})
    assert (config.input_size, config.evaluated_at) == (224, 224)
    config, _ = decided(64, FILE | {"backbone.name": "resnet32"})
    assert (config.input_size, config.evaluated_at) == (64, 64)


@pytest.mark.parametrize(
    ("name", "lr"),
    [
        ("resnet18", 6e-4),
        ("resnet32", 6e-4),
        ("convnext_atto", 1e-4),
        ("vit_tiny_patch16_224", 1e-4),
    ],
)
def test_networks_without_batch_norm_are_changed_more_slowly(name, lr):
    config, _ = decided(64, FILE | {"backbone.name": name})
    assert config.stages["representation"].lr == lr


def test_crops_are_large_and_weights_imprinted_where_a_pretrained_network_is_fine_tuned():
    tuned, scratch = (decided(64, given)[0] for given in (FILE | {"frozen": False}, SCRATCH))
    assert (tuned.augment.scale, tuned.stages["representation"].imprint) == (0.35, True)
    assert (scratch.augment.scale, scratch.stages["representation"].imprint) == (0.08, False)
    assert (tuned.evaluation_crop, scratch.evaluation_crop) == (1.0, 0.875)
    small, _ = decided(64, FILE | {"frozen": False, "input_size": 96})
    assert small.augment.scale == 0.08  # no crop is resized there


def test_what_is_said_wins():
    given = {"input_size": 96, "evaluation_size": 96, "stages.representation.algorithm": "sgd"}
    config, _ = decided(64, FILE | given)
    assert (config.input_size, config.evaluated_at) == (96, 96)
    assert config.stages["representation"].algorithm == "sgd"


def test_small_data_is_seen_more_often():
    stages = [
        fine_tuning("resnet18", n)["stages"]["representation"]
        for n in (8, 300, 3_000, 10_000, 10**6)
    ]
    assert [stage["epochs"] for stage in stages] == [60, 60, 60, 20, 10]
    assert [stage["batch_size"] for stage in stages] == [16, 16, 128, 128, 128]
    config, _ = decided(64, FILE | {"frozen": False}, count=20_000)
    assert config.stages["representation"].epochs == 10


def test_mixup_from_scratch_and_none_with_weights():
    mixup = [decided(32, given)[0].stages["representation"].mixup for given in (SCRATCH, FILE)]
    assert mixup == [0.4, 0.0]


SCRATCH = {"backbone.weights": ""}


@pytest.mark.parametrize(
    ("given", "method", "strength", "prior"),
    [
        (SCRATCH, "wcdas-prior", 1.0, "uniform"),
        (FILE, "wcdas-prior", 1.25, "uniform"),
        (FILE | {"frozen": True}, "wcdas-prior", 1.25, "uniform"),
        (FILE, "softmax", 0.0, "train"),
        (FILE | {"frozen": True}, "softmax", 0.0, "train"),
    ],
)
def test_the_prior_of_the_default_is_a_little_stronger_with_weights(given, method, strength, prior):
    config, _ = decided(32, given, method)
    assert config.stages["representation"].prior == strength
    assert config.prior == prior


@pytest.mark.parametrize("dataset", ["cifar100-lt", "inat2018"])
def test_a_shipped_recipe_is_from_scratch_unless_weights_are_given(dataset):
    scratch, _ = decided(224, name=dataset)
    tuned, _ = decided(224, FILE, name=dataset)
    assert (scratch.backbone.weights, scratch.stages["representation"].epochs) == ("", 200)
    expected = fine_tuning("resnet18", 4)["stages"]["representation"]
    assert expected.items() <= vars(tuned.stages["representation"]).items()


def test_from_scratch_by_choice_is_at_the_rate_of_that():
    config, notes = decided(224, SCRATCH, count=2048)
    assert (config.backbone.name, config.stages["representation"].lr) == ("resnet32", 0.2)
    assert config.input_size == 64  # on a CPU
    assert not any("pretrained" in note for note in notes)


@pytest.mark.parametrize(
    ("device", "at_hand", "name"),
    [
        ("cpu", ["resnet50", "tf_efficientnet_lite0"], "tf_efficientnet_lite0"),
        ("cuda", ["resnet50", "tf_efficientnet_lite2"], "resnet50"),
        ("cuda", ["tf_efficientnet_lite2"], "tf_efficientnet_lite2"),
    ],
)
def test_a_network_that_suits_the_machine(weights, device, at_hand, name):
    weights(*at_hand)
    config, notes = decided(64, device=device)
    assert (config.backbone.name, config.backbone.weights) == (name, "pretrained")
    assert config.input_size == {"cpu": 128, "cuda": 160}[device]
    assert name in notes[0]
    assert "--set backbone.name=" in notes[0]
    assert "64 px" in notes[1]
    assert "--set input_size=" in notes[1]


@pytest.mark.parametrize(
    ("device", "settings", "name", "size"),
    [
        ("cpu", {}, "resnet32", 64),
        ("cuda", {}, "resnet50", 224),
        ("cpu", {"backbone.name": "resnet18"}, "resnet18", 224),
    ],
)
def test_weights_that_cannot_be_had(weights, device, settings, name, size):
    weights()
    config, (note, *_) = decided(224, settings, device=device, count=2048)
    assert note.startswith("no pretrained weights can be had (no network), so training starts from")
    assert ("wcdas[weights]" in note) == (not settings)
    assert (config.backbone.name, config.backbone.weights) == (name, "")
    assert (config.input_size, config.stages["representation"].lr) == (size, 0.2)


def test_tiny_images_are_learnt_from_scratch(weights):
    weights("tf_efficientnet_lite0")
    config, (note, *_) = decided(16)
    assert (config.backbone.name, config.backbone.weights) == ("resnet32", "")
    assert "16 px" in note
    assert "from scratch: resnet32; " in note
    assert "--set backbone.weights=pretrained" in note


@pytest.mark.parametrize("settings", [{"backbone.weights": "pretrained"}, {"frozen": True}])
def test_tiny_images_are_given_to_a_pretrained_network_where_a_user_wants_it(weights, settings):
    weights("tf_efficientnet_lite0")
    config, _ = decided(16, settings)
    assert (config.backbone.name, config.input_size) == ("tf_efficientnet_lite0", 128)


@pytest.mark.parametrize(
    ("count", "batch_size", "rate"), [(2048, 128, 0.2), (1000, 32, 0.05), (4, 16, 0.025)]
)
def test_few_images_are_learnt_from_scratch_in_small_batches(weights, count, batch_size, rate):
    weights()
    config, _ = decided(64, method="softmax-two-stage", count=count)
    for stage in config.stages.values():
        assert (stage.batch_size, stage.lr) == (batch_size, pytest.approx(rate))


def test_a_size_of_zero_is_one_that_suits(weights):
    weights("tf_efficientnet_lite0")
    assert decided(64, {"input_size": 0}) == decided(64)


def test_much_work_is_frozen_on_a_cpu(weights):
    weights("tf_efficientnet_lite0", "resnet50")
    few, many = decided(224, count=200)[0], decided(224, count=3_000)
    assert not few.frozen
    config, notes = many
    assert config.frozen
    assert any("frozen" in note and "--set frozen=false" in note for note in notes)
    assert {stage.augment for stage in config.stages.values()} == {"none"}
    assert not decided(224, {"frozen": False}, count=3_000)[0].frozen
    assert not decided(224, {"epochs": 2}, count=3_000)[0].frozen
    assert decided(224, {"stages.representation.epochs": 20}, count=3_000)[0].frozen
    assert not decided(224, device="cuda", count=3_000)[0].frozen


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"stages.representation.augment": "simclr"}, "wcdas-prior"),
        ({"augment.erase": 0.1}, "wcdas-prior"),
        ({"backbone.drop_path": 0.1}, "wcdas-prior"),
        ({}, "paco"),
    ],
)
def test_what_trains_a_network_is_not_frozen_unasked(weights, settings, method):
    weights("tf_efficientnet_lite0")
    assert not decided(224, settings, method, count=3_000)[0].frozen


def test_images_far_smaller_than_the_input_are_refused():
    with pytest.raises(
        InputError, match=r"input_size is 224, but most images of own are 20 pixels"
    ):
        decided(20, SCRATCH | {"input_size": 224})


def test_experts_on_a_network_that_cannot_be_cut_are_trained_on_its_features(weights):
    weights("tf_efficientnet_lite0", "resnet18")
    config, notes = decided(64, method="ride")
    assert (config.backbone.name, config.frozen) == ("tf_efficientnet_lite0", True)
    assert any("cannot be cut into experts" in note for note in notes)
    config, _ = decided(64, {"backbone.name": "resnet18"}, "ride")
    assert not config.frozen


def test_a_small_network_of_our_own_is_trained_at_a_small_size_on_a_cpu(weights):
    weights()
    config, _ = decided(300, {"backbone.name": "resnet32"}, "ride")
    assert (config.backbone.name, config.input_size) == ("resnet32", 64)


def test_images_that_are_not_cropped_are_not_evaluated_larger():
    config, _ = decided(64, FILE | {"stages.representation.augment": "none"}, "softmax")
    assert config.evaluated_at == 128


def test_a_network_that_takes_one_size_only_is_evaluated_at_it(monkeypatch):
    monkeypatch.setattr(module, "takes", lambda name, built_for, size: False)
    config, _ = decided(64, FILE)
    assert config.evaluated_at == config.input_size == 128


def test_rates_by_layer_ask_for_training(weights):
    weights("tf_efficientnet_lite0")
    config, _ = decided(224, {"stages.representation.layer_decay": 0.8}, "softmax", count=2000)
    assert not config.frozen

"""Backbones by name."""

import subprocess
import sys

import pytest
import torch

from wcdas.backbones import can_be_cut, create_backbone, list_backbones, takes
from wcdas.errors import InputError


def test_identity_hands_features_on():
    backbone = create_backbone("identity", channels=512, input_size=0)
    features = torch.randn(3, 512)
    assert backbone.num_features == 512
    assert backbone(features) is features


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", 32),
        ("resnet18.a1_in1k", 32),
        ("mobilenetv3_small_050", 32),  # its classifier reads more features than the map has
        ("vit_tiny_patch16_224", 32),  # a fixed size, tokens instead of a map
        ("convnext_atto", 32),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_timm_models(name, size, channels):
    backbone = create_backbone(name, channels=channels, input_size=size).eval()
    images = torch.randn(2, channels, size, size)
    features = backbone(images)
    assert features.shape == (2, backbone.num_features)
    torch.testing.assert_close(features, backbone.network(images))
    torch.testing.assert_close(features, backbone.pool(backbone.forward_map(images)))
    assert backbone.mean is None
    assert backbone.std is None


def test_resnext50_is_an_alias():
    import timm

    ours = create_backbone("resnext50").network.state_dict()
    theirs = timm.create_model("resnext50_32x4d", num_classes=0).state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


def test_every_listed_name_is_known_to_someone():
    import timm

    names = list_backbones()
    own = ["resnet32", "resnet8", "resnet20", "resnet56", "resnet10", "identity"]
    assert names[: len(own)] == own
    assert len(set(names)) == len(names)
    assert set(names[len(own) :]) - {"resnext50"} <= set(timm.list_models())


@pytest.mark.parametrize("layers", [8, 20, 32, 56])
def test_resnets_for_small_images_have_their_number_of_layers(layers):
    backbone = create_backbone(f"resnet{layers}")
    weighted = [m for m in backbone.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(weighted) + 1 == layers  # the classifier is the last one


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("resnet_32", "'resnet32'"),
        ("ResNet-50", "'resnet50'"),
        ("efficientnet0", "'efficientnet_b0'"),
        ("resnet50.a1_in1q", "'resnet50.a1_in1k'"),
        ("hf-hub:timm/resnet18", "see `wcdas list backbones`"),
        ("local-dir:/tmp", "see `wcdas list backbones`"),
        ("", "see `wcdas list backbones`"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(given, near):
    with pytest.raises(InputError, match=f"unknown backbone '{given}'") as error:
        create_backbone(given)
    assert near in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "channels", "size"),
    [
        ("resnet32", 0, 32),
        ("resnet32", 3, 0),
        ("vit_tiny_patch16_224", 3, 8),
        ("inception_v3", 3, 32),
    ],
)
def test_impossible_sizes_are_one_line(name, channels, size):
    with pytest.raises(InputError, match=f"'{name}'.* {channels} channels of {size} pix") as error:
        create_backbone(name, channels=channels, input_size=size)
    assert "\n" not in str(error.value)


def test_building_leaves_the_network_ready_to_train():
    torch.manual_seed(0)
    network = create_backbone("resnet18").network
    assert network.training
    assert not network.bn1.running_mean.any(), "building it has counted as a batch"


def test_importing_the_package_does_not_import_timm():
    code = "import sys, wcdas.backbones; sys.exit('timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_paths_are_dropped_in_training_alone():
    torch.manual_seed(0)
    plain = create_backbone("tf_efficientnet_lite0").eval()
    torch.manual_seed(0)
    dropping = create_backbone("tf_efficientnet_lite0", drop_path=0.3).eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(plain(images), dropping(images))
    rates = [part.drop_prob for part in dropping.modules() if hasattr(part, "drop_prob")]
    assert rates == sorted(rates)
    assert max(rates) == pytest.approx(0.3 * 15 / 16)  # the rate would be that of a 17th block


@pytest.mark.parametrize("name", ["resnet32", "identity", "vgg11", "res2net50_14w_8s"])
def test_networks_without_paths_to_drop(name):
    """The last of them takes a rate, and does nothing with it."""
    with pytest.raises(InputError, match=f"drop_path is 0.1, but {name} has no paths to drop"):
        create_backbone(name, drop_path=0.1)


def test_a_rate_that_drops_everything():
    with pytest.raises(InputError, match=r"drop_path is 1\.0; expected"):
        create_backbone("resnet18", drop_path=1.0)


def test_the_size_a_network_is_made_for_is_named():
    with pytest.raises(InputError, match="such as the 256 it is made for"):
        create_backbone("swinv2_tiny_window8_256", input_size=100)


def test_features_are_those_that_heads_see():
    assert create_backbone("inception_next_atto", input_size=64).num_features > 0


@pytest.mark.parametrize(
    ("name", "size", "taken"), [("resnet18", 96, True), ("halonet26t", 320, False)]
)
def test_a_size_is_tried(name, size, taken):
    assert takes(name, 256, size) is taken


@pytest.mark.parametrize(
    ("name", "cut"), [("resnet32", True), ("resnet18", True), ("test_efficientnet", False)]
)
def test_what_can_be_cut_into_experts(name, cut):
    assert can_be_cut(name, 64) is cut

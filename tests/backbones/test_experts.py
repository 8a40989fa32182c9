"""A backbone with several ends: what is shared, what is each expert's own, and how wide."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from wcdas.backbones import create_backbone
from wcdas.backbones.base import Experts
from wcdas.errors import InputError

CUTTABLE = [("resnet32", 16), ("resnet10", 64), ("resnet18", 64)]


def images(size: int) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "size", "channels"),
    [("resnet32", 16, (24, 48)), ("resnet10", 64, (192, 384)), ("resnet18", 64, (192, 384))],
)
def test_experts_are_as_narrow_as_the_paper_says(name, size, channels):
    experts = Experts(create_backbone(name, input_size=size), count=3, width=0.75)
    assert experts(images(size)).shape == (2, experts.num_features) == (2, 3 * channels[1])
    for branch in experts.branches:
        widths = {m.out_channels for m in branch.modules() if isinstance(m, nn.Conv2d)}
        assert widths == set(channels)


def test_a_bottleneck_network_keeps_its_expansion():
    experts = Experts(create_backbone("resnext50", input_size=64), count=2, width=0.75)
    assert experts.sizes == [4 * 384, 4 * 384]
    assert experts.eval()(images(64)).shape == (2, 2 * 4 * 384)


@pytest.mark.parametrize(("name", "size"), CUTTABLE)
def test_features_are_those_of_the_backbone_for_every_expert(name, size, tmp_path):
    """Trained weights go to all experts: each is then the backbone they came from."""
    torch.manual_seed(0)
    trained = create_backbone(name, input_size=size)
    trained(images(size))  # batch norm has seen something
    network = getattr(trained, "network", trained)
    save_file(network.state_dict(), tmp_path / "trained.safetensors")
    again = create_backbone(name, input_size=size, weights=tmp_path / "trained.safetensors")
    experts = Experts(again, count=3).eval()
    expected = trained.eval()(images(size))
    for features in experts(images(size)).split(experts.sizes, dim=1):
        torch.testing.assert_close(features, expected)


def test_narrower_experts_begin_with_the_first_channels(tmp_path: Path):
    trained = create_backbone("resnet32")
    save_file(trained.state_dict(), tmp_path / "trained.safetensors")
    again = create_backbone("resnet32", weights=tmp_path / "trained.safetensors")
    experts = Experts(again, count=2, width=0.75)
    own = experts.branches[1].layers[1][0].conv1.weight
    assert own.equal(trained.stage3[0].conv1.weight[:48, :24])


@pytest.mark.parametrize(("name", "size"), CUTTABLE)
def test_experts_begin_differently_behind_shared_layers(name, size):
    experts = Experts(create_backbone(name, input_size=size), count=3, width=0.75).eval()
    one, two, three = experts(images(size)).split(experts.sizes, dim=1)
    assert not one.allclose(two, atol=1e-3)
    assert not two.allclose(three, atol=1e-3)
    filters = [
        next(m for m in branch.modules() if isinstance(m, nn.Conv2d)).weight
        for branch in experts.branches
    ]
    torch.testing.assert_close(filters[0].std(), filters[1].std(), rtol=0.1, atol=0)
    experts.zero_grad()
    experts(images(size)).split(experts.sizes, dim=1)[1].sum().backward()
    assert not any(p.grad.any() for p in experts.branches[0].parameters())
    assert any(p.grad.any() for p in experts.branches[1].parameters())
    assert any(p.grad.any() for p in experts.trunk.parameters())


@pytest.mark.parametrize(("name", "size"), CUTTABLE)
def test_features_are_the_pooled_map(name, size):
    experts = Experts(create_backbone(name, input_size=size), count=2).eval()
    feature_map = experts.forward_map(images(size))
    assert feature_map.shape[1] == experts.num_features
    torch.testing.assert_close(experts.pool(feature_map), experts(images(size)))
    torch.testing.assert_close(feature_map.mean((2, 3)), experts(images(size)))


def test_experts_on_feature_vectors_share_everything():
    experts = Experts(create_backbone("identity", channels=5), count=3, width=0.75)
    vectors = torch.randn(4, 5)
    assert experts(vectors).equal(torch.cat([vectors] * 3, dim=1))
    assert not list(experts.parameters())


def test_normalisation_of_pretrained_weights_is_kept(tmp_path):
    trained = create_backbone("resnet18", input_size=64)
    save_file(trained.network.state_dict(), tmp_path / "trained.safetensors")
    again = create_backbone("resnet18", input_size=64, weights=tmp_path / "trained.safetensors")
    assert again.mean is not None
    assert (Experts(again).mean, Experts(again).std) == (again.mean, again.std)
    assert Experts(trained).mean is None


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(InputError, match=r"convnext_atto cannot be cut .* expected resnet32"):
        Experts(create_backbone("convnext_atto", input_size=32))
    for count in (1, 100_000):
        with pytest.raises(InputError, match=f"options.experts is {count}; expected 2 to 32"):
            Experts(create_backbone("resnet32"), count=count)
    for width in (0.0, 1.5, float("nan")):
        with pytest.raises(InputError, match=f"options.width is {width}; expected above 0"):
            Experts(create_backbone("resnet32"), width=width)

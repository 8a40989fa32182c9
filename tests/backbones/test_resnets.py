"""The paper's two ResNets against published sizes and independent builds."""

import math

import pytest
import torch
from torch import nn

from wcdas.backbones import create_backbone


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_resnet32_has_the_published_size():
    backbone = create_backbone("resnet32")
    assert parameters(backbone) == 463_504
    # He et al. give 0.46 M; with the linear layer for CIFAR-10:
    assert parameters(backbone) + parameters(nn.Linear(backbone.num_features, 10)) == 464_154
    # 1 + 2·15 convolutions; the linear layer is the 32nd.
    assert sum(isinstance(m, nn.Conv2d) for m in backbone.modules()) == 31


def test_resnet10_is_resnet18_with_one_block_a_stage():
    from timm.models.resnet import BasicBlock, ResNet

    theirs = ResNet(BasicBlock, (1, 1, 1, 1), num_classes=0).eval()
    ours = create_backbone("resnet10").eval()
    assert parameters(ours) == parameters(theirs)
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours.forward_map(images), theirs.forward_features(images))
    torch.testing.assert_close(ours(images), theirs(images))


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize(
    ("name", "size", "side", "features"),
    [("resnet32", 8, 2, 64), ("resnet32", 31, 8, 64), ("resnet10", 64, 2, 512)],
)
def test_shapes(name, size, side, features, channels):
    backbone = create_backbone(name, channels=channels, input_size=size)
    images = torch.randn(2, channels, size, size)
    feature_map = backbone.eval().forward_map(images)
    assert feature_map.shape == (2, features, side, side)
    pooled = backbone(images)
    assert pooled.shape == (2, backbone.num_features)
    torch.testing.assert_close(pooled, feature_map.flatten(2).mean(dim=2))


def test_shortcut_subsamples_and_pads_with_zeros():
    block = create_backbone("resnet32").stage2[0]
    x = torch.randn(1, 16, 6, 6)
    shortcut = block.shortcut(x)
    assert shortcut.shape == (1, 32, 3, 3)
    assert torch.equal(shortcut[:, 8:24], x[:, :, [0, 2, 4]][..., [0, 2, 4]])
    assert not shortcut[:, :8].any()
    assert not shortcut[:, 24:].any()


@pytest.mark.parametrize("layer", ["stage1.0.conv1", "stage2.0.conv1", "stage3.4.conv2"])
def test_he_initialisation(layer):
    torch.manual_seed(0)
    weight = create_backbone("resnet32").get_submodule(layer).weight
    fan_in = weight[0].numel()
    assert weight.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=0.05)


def test_seed_decides_the_weights():
    def build(seed):
        torch.manual_seed(seed)
        return create_backbone("resnet32").state_dict()["stage3.0.conv1.weight"]

    assert torch.equal(build(1), build(1))
    assert not torch.equal(build(1), build(2))


@pytest.mark.parametrize("name", ["resnet32", "resnet10"])
def test_every_parameter_gets_a_gradient(name):
    backbone = create_backbone(name)
    backbone(torch.randn(4, 3, 64, 64)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in backbone.parameters())

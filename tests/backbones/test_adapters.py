"""Low-rank adapters: what learns, what stays, and what is left of them in the end."""

import sys

import pytest
import timm
import torch
from safetensors.torch import save_file

from wcdas.backbones import create_backbone, let_learn, merge_adapters
from wcdas.errors import InputError

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def weights(tmp_path):
    """Writes the weights of a network as it is drawn; nothing that has learnt can be had here."""

    def written(name, **options):
        torch.manual_seed(0)
        path = tmp_path / f"{name}.safetensors"
        save_file(timm.create_model(name, num_classes=0, **options).state_dict(), path)
        return path

    return written


@pytest.fixture
def adapted(weights):
    path = weights("test_vit", img_size=32)
    return create_backbone("test_vit", weights=path, lora=4).attach_neck("linear", 8)


def learning(module):
    return {name for name, p in module.named_parameters() if p.requires_grad}


def test_it_starts_as_the_network_it_adapts(adapted, weights):
    plain = create_backbone("test_vit", weights=weights("test_vit", img_size=32)).eval()
    adapted.eval()
    ours, theirs = (b.pool(b.forward_map(IMAGES)) for b in (adapted, plain))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("begun", [False, True])
def test_adapters_and_neck_alone_learn(adapted, begun):
    if begun:  # as a stage begins
        let_learn(adapted, False)
        assert not learning(adapted)
        let_learn(adapted, True)
    names = learning(adapted)
    assert all("lora_" in name or name.startswith("neck.") for name in names)
    blocks = len(adapted.network.blocks)
    assert len(names) == blocks * 4 * 2 + 3  # qkv, proj, fc1 and fc2 have A and B each; the neck
    adapted(IMAGES).square().sum().backward()
    assert all(p.grad is not None for p in adapted.parameters() if p.requires_grad)


def test_without_adapters_all_learns():
    backbone = create_backbone("test_vit")
    let_learn(backbone, False)
    assert not learning(backbone)
    let_learn(backbone, True)
    assert learning(backbone) == {name for name, _ in backbone.named_parameters()}


def test_merged_it_is_the_plain_network(adapted):
    """W + BA, and no trace of anything else."""
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.1)
        layer = adapted.network.blocks[1].mlp.fc1
        a, b = (part["default"].weight.double() for part in (layer.lora_A, layer.lora_B))
        expected = layer.weight.double() + b @ a
        before = adapted.eval()(IMAGES)
        merge_adapters(adapted)
        after = adapted(IMAGES)
    torch.testing.assert_close(adapted.network.blocks[1].mlp.fc1.weight.double(), expected)
    torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-5)
    plain = create_backbone("test_vit").attach_neck("linear", 8)
    plain.load_state_dict(adapted.state_dict())
    torch.testing.assert_close(plain.eval()(IMAGES), after, rtol=0, atol=0)
    kinds = [type(module) for module in adapted.modules()]
    assert kinds == [type(module) for module in plain.modules()]
    assert vars(adapted.network).keys() == vars(plain.network).keys()
    let_learn(adapted, True)
    assert learning(adapted) == learning(plain)


@pytest.mark.parametrize(
    ("name", "size"), [("eva02_tiny_patch14_224", 56), ("swinv2_tiny_window8_256", 64)]
)
def test_layers_whose_weights_are_read_beside_them(name, size, weights):
    """These networks put three biases together and pass the layer by, unless they are told."""
    path = weights(name, img_size=size)
    backbone = create_backbone(name, input_size=size, weights=path, lora=2)
    assert any("qkv.lora_B" in key for key in learning(backbone))
    images = torch.randn(2, 3, size, size)
    backbone(images).square().sum().backward()
    assert all(p.grad is not None for p in backbone.parameters() if p.requires_grad)
    plain = create_backbone(name, input_size=size, weights=path).eval()
    torch.testing.assert_close(backbone.eval()(images), plain(images))


def test_batch_norm_beside_adapters_is_frozen(weights):
    path = weights("levit_128", img_size=64)
    backbone = create_backbone("levit_128", input_size=64, weights=path, lora=2)
    norms = {k: v.clone() for k, v in backbone.named_buffers() if "running" in k}
    assert norms
    backbone.train()(torch.randn(4, 3, 64, 64))
    assert all(torch.equal(v, norms[k]) for k, v in backbone.named_buffers() if k in norms)


def refused(said, *arguments, **options):
    with pytest.raises(InputError, match=said) as error:
        create_backbone(*arguments, **options)
    assert "\n" not in str(error.value)


def test_what_cannot_be_adapted(weights, monkeypatch):
    refused("no linear layers", "resnet32", lora=4)
    refused("no linear layers", "identity", channels=8, lora=4)
    refused("no linear layers", "test_resnet", weights=weights("test_resnet"), lora=4)
    refused("starts from scratch.*backbone.weights", "test_vit", lora=4)
    path = weights("test_vit", img_size=32)
    refused("lora is -1; expected", "test_vit", weights=path, lora=-1)
    monkeypatch.setitem(sys.modules, "peft", None)
    refused(r"pip install 'wcdas\[peft\]'", "test_vit", weights=path, lora=4)
    create_backbone("test_vit", weights=path)

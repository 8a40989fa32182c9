"""The optimizer of a stage beside PyTorch's own and timm's rates by layer."""

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay
from torch import nn

from wcdas.backbones import create_backbone
from wcdas.backbones.base import Experts
from wcdas.heads import create_head
from wcdas.heads.experts import ExpertsHead
from wcdas.methods.classifier import Classifier
from wcdas.methods.oltr import AttentiveBackbone
from wcdas.run.optimizer import create_optimizer, load_optimizer
from wcdas.run.spec import Stage


@pytest.fixture
def model() -> Classifier:
    torch.manual_seed(0)
    backbone = create_backbone("resnet18", input_size=32).attach_neck("linear", 16)
    return Classifier(backbone, create_head("wcdas", 16, 5))


def rates(optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, float]:
    return {p: group["lr_scale"] for group in optimizer.param_groups for p in group["params"]}


def decays(optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, float]:
    return {p: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}


def test_rates_by_layer_are_those_of_timm(model):
    found = rates(create_optimizer(model, Stage(layer_decay=0.7)))
    network = model.backbone.network
    expected = {
        p: group["lr_scale"]
        for group in param_groups_layer_decay(network, layer_decay=0.7)
        for p in group["params"]
    }
    top = max(expected.values())
    assert len(set(expected.values())) > 5
    for p in network.parameters():
        assert found[p] == pytest.approx(expected[p] / top)
    first, last = network.conv1.weight, network.layer4[-1].conv2.weight
    assert found[first] < found[last] == 1


def test_a_backbone_of_our_own_has_rates_by_layer_too():
    backbone = create_backbone("resnet32")
    found = rates(create_optimizer(Classifier(backbone, create_head("linear", 64, 5)), Stage()))
    assert set(found.values()) == {1.0}
    model = Classifier(backbone, create_head("linear", 64, 5))
    found = rates(create_optimizer(model, Stage(layer_decay=0.5)))
    in_order = [found[p] for p in backbone.parameters()]
    assert in_order == sorted(in_order)
    assert in_order[0] < in_order[-1] == 1


def test_head_and_neck_have_a_rate_of_their_own(model):
    found = rates(create_optimizer(model, Stage(head_lr=10.0)))
    for p in (*model.head.parameters(), *model.backbone.neck.parameters()):
        assert found[p] == 10
    assert {found[p] for p in model.backbone.network.parameters()} == {1.0}


def test_adamw_leaves_norms_and_biases_alone_and_sgd_does_not(model):
    adamw = decays(create_optimizer(model, Stage(algorithm="adamw", weight_decay=0.1)))
    assert {adamw[p] for p in model.parameters() if p.ndim > 1} == {0.1}
    assert {adamw[p] for p in model.parameters() if p.ndim <= 1} == {0.0}
    sgd = decays(create_optimizer(model, Stage(weight_decay=0.1)))
    assert set(sgd.values()) == {0.1}
    own = Stage(algorithm="adamw", weight_decay=0.1, concentration_weight_decay=0.3)
    adamw = decays(create_optimizer(model, own))
    concentrations = [getattr(model.head, name) for name in model.head.concentration_names]
    assert {adamw[p] for p in concentrations} == {0.3}


@pytest.mark.parametrize("algorithm", ["sgd", "adamw"])
def test_steps_are_those_of_pytorch(algorithm):
    torch.manual_seed(1)
    network = timm.create_model("resnet18", num_classes=0).double()
    backbone = create_backbone("resnet18", input_size=32).double()
    backbone.network.load_state_dict(network.state_dict())
    head, other = (create_head("linear", 512, 3).double() for _ in range(2))
    other.load_state_dict(head.state_dict())
    stage = Stage(algorithm=algorithm, lr=0.01, momentum=0.8, weight_decay=0.05)
    optimizer = create_optimizer(Classifier(backbone, head), stage)
    pairs = [*network.parameters(), *other.parameters()]
    if algorithm == "adamw":
        groups = [
            {"params": [p for p in pairs if p.ndim > 1], "weight_decay": 0.05},
            {"params": [p for p in pairs if p.ndim <= 1], "weight_decay": 0.0},
        ]
        reference = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.999))
    else:
        reference = torch.optim.SGD(pairs, lr=0.01, momentum=0.8, weight_decay=0.05)
    images, labels = torch.randn(4, 3, 32, 32).double(), torch.tensor([0, 1, 2, 1])
    for _ in range(3):
        for features, last, steps in (
            (backbone(images), head, optimizer),
            (network(images), other, reference),
        ):
            steps.zero_grad()
            nn.functional.cross_entropy(last(features), labels).backward()
            steps.step()
    torch.testing.assert_close(head.weight, other.weight, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        backbone.network.conv1.weight, network.conv1.weight, rtol=1e-9, atol=1e-12
    )


def test_experts_have_their_layers_side_by_side():
    backbone = Experts(create_backbone("resnet8").attach_neck("linear", 8), count=3)
    head = ExpertsHead([create_head("linear", size, 4) for size in backbone.sizes])
    stage = Stage(layer_decay=0.5, head_lr=10.0)
    found = rates(create_optimizer(Classifier(backbone, head), stage))
    branches = [
        [found[p] for name, p in branch.named_parameters() if not name.startswith("neck.")]
        for branch in backbone.branches
    ]
    assert branches[0] == branches[1] == branches[2] == sorted(branches[0])
    assert branches[0][-1] == 1
    assert max(found[p] for p in backbone.trunk.parameters()) == branches[0][0] / 2
    assert {found[p] for branch in backbone.branches for p in branch.neck.parameters()} == {10}


def test_a_network_inside_another_keeps_its_layers():
    inner = create_backbone("resnet8").attach_neck("linear", 8)
    model = Classifier(AttentiveBackbone(inner), create_head("linear", 8, 4))
    found = rates(create_optimizer(model, Stage(layer_decay=0.5, head_lr=10.0)))
    assert found[next(p for name, p in inner.named_parameters() if "neck" not in name)] < 1
    fresh = (*inner.neck.parameters(), *model.backbone.attention.parameters())
    assert {found[p] for p in fresh} == {10}


def test_positions_do_not_decay():
    backbone = create_backbone("test_vit", input_size=32)
    model = Classifier(backbone, create_head("linear", backbone.num_features, 4))
    found = decays(create_optimizer(model, Stage(algorithm="adamw", weight_decay=0.1)))
    network = backbone.network
    assert found[network.pos_embed] == found[network.cls_token] == 0
    assert found[network.patch_embed.proj.weight] == 0.1


def test_a_state_of_another_device_goes_on_with_the_kernels_of_this_one(model):
    stage = Stage(algorithm="adamw")
    optimizer, other = create_optimizer(model, stage), create_optimizer(model, stage)
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group |= {"fused": True, "capturable": True, "lr": 0.5}
        del group["lr_scale"]  # as in older checkpoints
    load_optimizer(other, state)
    for group in other.param_groups:
        assert (group["fused"], group["capturable"]) == (False, False)
        assert (group["lr"], group["lr_scale"]) == (0.5, 1.0)

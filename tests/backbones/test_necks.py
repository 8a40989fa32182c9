"""Necks against NumPy, and what a backbone is with one."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wcdas.backbones import create_backbone, create_neck, list_necks
from wcdas.backbones.base import Experts
from wcdas.backbones.resnet32_gpu.network import fuse
from wcdas.data import open_dataset

EPS, MOMENTUM = 1e-5, 0.1


def some_features(rows: int = 32, length: int = 6) -> torch.Tensor:
    """In a narrow cone, as pooled features are."""
    return 5 + torch.randn(rows, length, generator=torch.Generator().manual_seed(0))


def seen(neck: nn.Module) -> nn.Module:
    """With numbers in it that are not those of the start."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in (*neck.parameters(), *neck.buffers()):
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    return neck


NECKS = ["batch-norm", "linear", "linear-relu"]


@pytest.mark.parametrize(
    ("name", "features"),
    [("batch-norm", 0), ("linear", 0), ("linear", 4), ("linear-relu", 0), ("linear-relu", 4)],
)
def test_a_neck_is_what_numpy_makes_of_it(name, features):
    neck, x = seen(create_neck(name, 6, features)), some_features()
    start = {key: value.double().numpy() for key, value in neck.state_dict().items()}
    gamma, beta, mean, var = (
        start[f"norm.{key}"] for key in ("weight", "bias", "running_mean", "running_var")
    )
    z, last = x.double().numpy(), 0.0 if name == "linear-relu" else -np.inf
    if name != "batch-norm":
        z = z @ start["linear.weight"].T
        assert "linear.bias" not in start
    assert neck.out_features == z.shape[1]
    trained = neck.train()(x)
    batch_mean, batch_var = z.mean(0), z.var(0)
    expected = np.maximum(gamma * (z - batch_mean) / np.sqrt(batch_var + EPS) + beta, last)
    np.testing.assert_allclose(trained.detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    mean = (1 - MOMENTUM) * mean + MOMENTUM * batch_mean
    var = (1 - MOMENTUM) * var + MOMENTUM * z.var(0, ddof=1)
    expected = np.maximum(gamma * (z - mean) / np.sqrt(var + EPS) + beta, last)
    answered = neck.eval()(x).detach().numpy()
    np.testing.assert_allclose(answered, expected, rtol=1e-4, atol=1e-4)


def test_none_is_nothing():
    neck, x = create_neck("none", 6), some_features()
    assert neck(x) is x
    assert not neck.state_dict()
    assert list_necks() == ["none", *NECKS]


@pytest.mark.parametrize("name", NECKS)
def test_autocast_does_not_reach_it(name):
    neck, x = seen(create_neck(name, 6)), some_features().bfloat16()
    expected = neck(x.float())
    with torch.autocast("cpu", torch.bfloat16):
        got = neck(x)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert neck.double()(x.double()).dtype == torch.float64


def mean_cosine(features: torch.Tensor) -> float:
    unit = F.normalize(features)
    cosines = (unit @ unit.T)[~torch.eye(len(unit), dtype=torch.bool)]
    return cosines.mean().item()


@pytest.mark.parametrize("name", NECKS)
def test_it_opens_the_cone_that_features_start_in(name):
    """Normal vectors behind a ReLU have a mean cosine of 1/π."""
    pixels = open_dataset("digits-lt").train.pixels.float() / 255
    backbone = create_backbone("resnet32", channels=1)
    with torch.no_grad():
        assert mean_cosine(backbone(pixels)) > 0.8
        opened = mean_cosine(backbone.attach_neck(name)(pixels))
    expected = 1 / math.pi if name == "linear-relu" else 0
    assert opened == pytest.approx(expected, abs=0.1)


BACKBONES = [("resnet32", 16), ("resnet10", 64), ("resnet18", 64), ("vit_tiny_patch16_224", 32)]


@pytest.mark.parametrize(("name", "size"), BACKBONES)
def test_a_backbone_gives_what_its_neck_gives(name, size):
    torch.manual_seed(0)
    plain = create_backbone(name, input_size=size).eval()
    torch.manual_seed(0)
    necked = create_backbone(name, input_size=size).attach_neck("linear", 20).eval()
    seen(necked.neck)
    images = torch.randn(2, 3, size, size)
    assert (necked.pooled_features, necked.num_features) == (plain.num_features, 20)
    torch.testing.assert_close(necked(images), necked.neck(plain(images)))
    torch.testing.assert_close(necked.pool(necked.forward_map(images)), plain(images))
    own = {key for key in necked.state_dict() if not key.startswith("neck.")}
    assert own == set(plain.state_dict())
    necked.to(memory_format=torch.channels_last)
    torch.testing.assert_close(necked(images), necked.neck(plain(images)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "size"), [*BACKBONES, ("identity", 0)])
def test_without_a_neck_nothing_has_changed(name, size):
    torch.manual_seed(0)
    plain = create_backbone(name, input_size=size)
    drawn = torch.get_rng_state()
    torch.manual_seed(0)
    none = create_backbone(name, input_size=size).attach_neck("none")
    assert none.num_features == plain.num_features
    assert not any("neck" in key for key in none.state_dict())
    torch.testing.assert_close(none.state_dict(), plain.state_dict(), rtol=0, atol=0)
    assert torch.get_rng_state().equal(drawn)


def test_another_neck_takes_the_place_of_the_first():
    backbone = create_backbone("identity", channels=6).attach_neck("linear", 20)
    assert backbone.attach_neck("batch-norm").num_features == 6
    assert set(dict(backbone.named_parameters())) == {"neck.norm.weight", "neck.norm.bias"}


def test_the_kernels_leave_the_neck_alone():
    backbone = create_backbone("resnet32").attach_neck("batch-norm").eval()
    images = torch.randn(2, 3, 16, 16)
    expected = seen(backbone.neck) and backbone(images)
    fuse(backbone)
    torch.testing.assert_close(backbone(images), expected, rtol=0, atol=0)


@pytest.mark.parametrize(("features", "length"), [(0, 48), (20, 20)])
def test_every_expert_has_a_neck_of_its_own(features, length):
    whole = create_backbone("resnet32").attach_neck("linear", features)
    experts = Experts(whole, count=3, width=0.75).eval()
    assert (experts.channels, experts.sizes) == ([48] * 3, [length] * 3)
    images = torch.randn(2, 3, 16, 16)
    shared = experts.trunk(images)
    expected = torch.cat([seen(branch.neck) and branch(shared) for branch in experts.branches], 1)
    torch.testing.assert_close(experts(images), expected)
    weights = [branch.neck.linear.weight for branch in experts.branches]
    assert len({weight.data_ptr() for weight in weights}) == 3
    assert not any(key.startswith(("neck.", "trunk.neck.")) for key in experts.state_dict())


def test_experts_on_feature_vectors_differ_by_their_necks():
    experts = Experts(create_backbone("identity", channels=6).attach_neck("linear", 4), count=2)
    x = some_features()
    first, second = experts(x).split(experts.sizes, dim=1)
    torch.testing.assert_close(first, experts.branches[0].neck(x))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("name", NECKS)
def test_several_gpus_share_its_statistics(name):
    """Converted as the trainer does it; the names of the tensors stay."""
    backbone = create_backbone("identity", channels=6).attach_neck(name)
    seen(backbone.neck)
    x, names = some_features(), list(backbone.state_dict())
    expected = backbone.eval()(x)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(backbone)
    assert isinstance(converted.neck.norm, nn.SyncBatchNorm)
    assert list(converted.state_dict()) == names
    torch.testing.assert_close(converted(x), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("batchnorm", 6), "unknown neck 'batchnorm'; did you mean 'batch-norm'?"),
        (("batch-norm", 6, 3), "features is 3, but a neck 'batch-norm' gives as many as it gets"),
        (("none", 6, 6), "features is 6, but a neck 'none' gives as many as it gets; leave it"),
        (("linear", 6, -1), "features is -1; expected a whole number of at least 0"),
        (("linear", 6, True), "features is True; expected a whole number of at least 0"),
        (("linear", 0), "in_features is 0; expected a whole number of at least 1"),
        (("none", 1.5), "in_features is 1.5; expected a whole number of at least 1"),
    ],
)
def test_what_is_no_neck_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")) as error:
        create_neck(*arguments)
    assert "\n" not in str(error.value)

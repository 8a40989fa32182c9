"""A ResNet-32 through the kernels beside itself in float64.

On a GPU, or in Triton's interpreter (see `test_in_the_interpreter.py`).
"""

import copy

import pytest
import torch
from torch import nn

from wcdas.backbones.resnet32 import ResNet32
from wcdas.kernels.residual_network import fuse
from wcdas.kernels.triton_language import INTERPRETED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU or TRITON_INTERPRET=1"
)


@pytest.fixture(autouse=True)
def _float32_means_float32():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def pair(blocks=1, channels=3):
    """A network through the kernels, and the same in float64."""
    network = ResNet32(channels, blocks).to(DEVICE)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, 0.0, 0.2)
    plain = copy.deepcopy(network).double()
    fuse(network)
    return network, plain


def is_fused(feature_map):
    return "ResidualFunction" in type(feature_map.grad_fn).__name__


def error(ours, exact):
    return ((ours.double() - exact.double()).norm() / exact.double().norm()).item()


@pytest.mark.parametrize(
    ("blocks", "channels", "images", "size"),
    [(2, 3, 3, (8, 8)), (1, 1, 5, (6, 10)), (1, 3, 2, (9, 7))],
)
def test_the_same_map_gradients_and_running_statistics(blocks, channels, images, size):
    network, plain = pair(blocks, channels)
    x = torch.randn(images, channels, *size, device=DEVICE, requires_grad=True)
    exact_x = x.detach().double().requires_grad_()
    ours, exact = network.forward_map(x), plain.forward_map(exact_x)
    assert is_fused(ours)
    assert error(ours, exact) < 1e-5
    gradient = torch.randn_like(ours)
    ours.backward(gradient)
    exact.backward(gradient.double())
    assert error(x.grad, exact_x.grad) < 1e-5
    for own, other in zip(network.parameters(), plain.parameters(), strict=True):
        assert error(own.grad, other.grad) < 2e-5
        assert own.grad.dtype == own.dtype
    for (name, own), other in zip(network.named_buffers(), plain.buffers(), strict=True):
        assert error(own, other) < 1e-5, name
    assert network.bn1.num_batches_tracked == 1


def test_bfloat16_is_as_near_as_torch_is():
    """Roundings differ, so the error may be half as large again as that of torch's own bfloat16."""
    network, exact = pair()
    theirs = copy.deepcopy(exact).float()
    x = torch.randn(4, 3, 8, 8, device=DEVICE)
    gradient = torch.randn_like(exact.forward_map(x.double()))
    maps, gradients = {}, {}
    for name, module in {"ours": network, "theirs": theirs, "exact": exact}.items():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=module is not exact):
            maps[name] = module.forward_map(x.double() if module is exact else x)
        module.zero_grad()
        maps[name].backward(gradient.to(maps[name].dtype))
        gradients[name] = torch.cat([p.grad.double().flatten() for p in module.parameters()])
    assert is_fused(maps["ours"])
    assert maps["ours"].dtype == maps["theirs"].dtype == torch.bfloat16
    # The interpreter cuts a bfloat16 off, which doubles an error.
    allowed = 3.0 if INTERPRETED else 1.5
    for values in (maps, gradients):
        theirs_error = error(values["theirs"], values["exact"])
        assert error(values["ours"], values["exact"]) < allowed * theirs_error


def test_a_frozen_part_gets_no_gradient():
    network, plain = pair()
    for module in (network, plain):
        module.conv1.requires_grad_(False)
        module.stage1.requires_grad_(False)
    x = torch.randn(2, 3, 8, 8, device=DEVICE)
    network(x).sum().backward()
    plain(x.double()).sum().backward()
    assert network.conv1.weight.grad is None
    assert network.stage1[0].bn1.weight.grad is None
    ours, exact = network.stage3[0].conv1.weight.grad, plain.stage3[0].conv1.weight.grad
    assert error(ours, exact) < 2e-5


def test_derivatives_of_derivatives_are_autograds():
    network, plain = pair()
    x = torch.randn(2, 3, 8, 8, device=DEVICE)
    second = []
    for module, images in ((network, x), (plain, x.double())):
        loss = module(images).square().sum()
        first = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        second.append(torch.autograd.grad(penalty, module.conv1.weight)[0])
    assert error(*second) < 1e-4
    assert torch.equal(network.bn1.num_batches_tracked, plain.bn1.num_batches_tracked)
    assert error(network.bn1.running_mean, plain.bn1.running_mean) < 1e-5


def test_where_no_kernel_fits_the_network_runs_as_written():
    def falls_back(change, images=None):
        network, _ = pair()
        change(network)
        images = torch.randn(2, 3, 8, 8, device=DEVICE) if images is None else images
        feature_map = network.forward_map(images)
        assert not is_fused(feature_map)
        torch.testing.assert_close(feature_map, ResNet32.forward_map(network, images))

    falls_back(lambda network: network.eval())
    falls_back(lambda network: network.stage1.eval())
    falls_back(lambda network: network.double(), torch.randn(2, 3, 8, 8, device=DEVICE).double())
    falls_back(lambda network: setattr(network.bn1, "momentum", None))
    falls_back(lambda network: network.conv1.register_forward_hook(lambda *_: None))
    falls_back(lambda network: None, torch.randn(1, 3, 8, 8, device=DEVICE))


def test_state_and_copies_stay_those_of_the_network():
    network, plain = pair()
    assert list(network.state_dict()) == list(plain.state_dict())
    twin = copy.deepcopy(network)
    nn.init.zeros_(twin.stage3[0].bn2.weight)
    twin(torch.randn(2, 3, 8, 8, device=DEVICE))
    assert twin.bn1.num_batches_tracked == 1
    assert network.bn1.num_batches_tracked == 0


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_cuda_graph_holds_a_step():
    network, _ = pair()
    x = torch.randn(8, 3, 32, 32, device=DEVICE)

    def step():
        network.zero_grad(set_to_none=False)
        with torch.autocast(DEVICE, torch.bfloat16):
            feature_map = network.forward_map(x)
        feature_map.float().square().sum().backward()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    eager = [p.grad.clone() for p in network.parameters()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    for captured, before in zip(network.parameters(), eager, strict=True):
        assert torch.equal(captured.grad, before)
    assert network.bn1.num_batches_tracked == 4

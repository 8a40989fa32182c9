"""A ResNet-32 through the kernels beside itself in float64 and beside torch's own bfloat16.

On a CPU its images say that they are on a GPU, and the kernels are emulated.
"""

import copy

import pytest
import torch
from torch import nn

from wcdas.backbones.resnet32_gpu import network as residual_network
from wcdas.backbones.resnet32_gpu.network import can_run, compile_ahead, fuse
from wcdas.backbones.resnets import ResNet32

SHAPES = [  # channels, images, size
    (1, 3, (6, 10)),
    pytest.param(3, 2, (8, 8), marks=pytest.mark.slow),
    pytest.param(3, 2, (9, 7), marks=pytest.mark.slow),
]


class OnAGpu(torch.Tensor):
    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl


@pytest.fixture(autouse=True)
def _kernels(device, kernels_of, monkeypatch):
    if device.type == "cpu":
        monkeypatch.setattr(residual_network, "kernels_on", lambda _, kernels: kernels_of(kernels))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))


@pytest.fixture
def pictures(device):
    """Images for the kernels."""

    def make(channels=3, images=2, size=(8, 8)):
        x = torch.randn(images, channels, *size).to(device)
        return x if x.is_cuda else x.as_subclass(OnAGpu)

    return make


@pytest.fixture
def pair(device):
    """A network through the kernels, and the same as it is written."""

    def make(channels=3):
        network = ResNet32(channels, blocks=1)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 0.2)
                nn.init.normal_(module.bias, 0.0, 0.2)
        network = network.to(device)
        plain = copy.deepcopy(network)
        fuse(network)
        return network, plain

    return make


def in_bfloat16(network, x):
    with torch.autocast(x.device.type, torch.bfloat16):
        return network.forward_map(x)


def is_fused(feature_map):
    return "ResidualFunction" in type(feature_map.grad_fn).__name__


def error(ours, exact):
    return ((ours.double() - exact.double()).norm() / exact.double().norm()).item()


def flat(tensors):
    return torch.cat([t.double().flatten() for t in tensors])


def training_step(network, x, gradient, dtype=torch.bfloat16):
    """The map and its gradients by all parameters."""
    feature_map = in_bfloat16(network, x) if dtype == torch.bfloat16 else network.forward_map(x)
    assert feature_map.dtype == dtype
    gradients = torch.autograd.grad(feature_map, list(network.parameters()), gradient.to(dtype))
    assert all(g.dtype == p.dtype for g, p in zip(gradients, network.parameters(), strict=True))
    return feature_map, *gradients


@pytest.mark.parametrize(("channels", "images", "size"), SHAPES)
def test_as_near_to_the_exact_numbers_as_torch_is(pair, pictures, device, channels, images, size):
    """Roundings differ, so the error may be half as large again as that of torch's bfloat16.

    A rounding can close a ReLU that is open, which is seen in all gradients before it: hence the
    errors of several networks together.
    """
    ours, theirs, exact = [], [], []
    for _ in range(4 if device.type == "cpu" else 16):
        network, plain = pair(channels)
        twin = copy.deepcopy(plain).double()
        x = pictures(channels, images, size)
        gradient = torch.randn(images, 64, *(-(-side // 4) for side in size)).to(device)
        ours.append(training_step(network, x, gradient))
        assert is_fused(ours[-1][0])
        theirs.append(training_step(plain, x, gradient))
        exact.append(training_step(twin, x.double(), gradient, torch.float64))
        for (name, own), other in zip(network.named_buffers(), twin.buffers(), strict=True):
            assert error(own, other) < 0.02, name
        assert network.bn1.num_batches_tracked == 1
    of_all = ([flat(one) for one in zip(*steps, strict=True)] for steps in (ours, theirs, exact))
    maps, *gradients = zip(*of_all, strict=True)
    together = [torch.cat(one) for one in zip(*gradients, strict=True)]
    for own, other, right in (maps, together):
        assert error(own, right) < 1.5 * error(other, right)
    for own, other, right in gradients:
        assert error(own, right) < 2 * error(other, right) + 0.05


@pytest.mark.slow
def test_a_second_step_starts_anew(pair, pictures):
    """The running statistics follow both, the gradients add up."""
    network, theirs = pair()
    exact = theirs.double()
    for _ in range(2):
        x = pictures()
        in_bfloat16(network, x).float().sum().backward()
        exact.forward_map(x.double()).sum().backward()
    assert network.stage3[0].bn2.num_batches_tracked == 2
    assert error(network.bn1.running_var, exact.bn1.running_var) < 1e-3
    assert error(network.stage3[0].bn2.bias.grad, exact.stage3[0].bn2.bias.grad) < 0.05


def test_a_second_backward_pass_gives_the_same(pair, pictures):
    network, _ = pair()
    feature_map, parameters = in_bfloat16(network, pictures()), list(network.parameters())
    ones = torch.ones_like(feature_map)
    first = torch.autograd.grad(feature_map, parameters, ones, retain_graph=True)
    second = torch.autograd.grad(feature_map, parameters, ones)
    assert error(flat(second), flat(first)) < 1e-3  # a GPU adds in any order


def test_a_frozen_part_gets_no_gradient(pair, pictures):
    network, _ = pair()
    twin = copy.deepcopy(network)
    for module in (network.conv1, network.stage1, network.stage2[0].conv2):
        module.requires_grad_(False)
    x = pictures()
    for module in (network, twin):
        feature_map = in_bfloat16(module, x)
        assert is_fused(feature_map)
        feature_map.float().square().sum().backward()
    assert network.conv1.weight.grad is network.stage2[0].conv2.weight.grad is None
    assert network.stage1[0].bn1.weight.grad is None
    assert error(network.bn1.bias.grad, twin.bn1.bias.grad) < 1e-5
    assert error(network.stage2[0].conv1.weight.grad, twin.stage2[0].conv1.weight.grad) < 1e-5


def test_nothing_to_train_is_a_map_all_the_same(pair, pictures):
    network, plain = pair()
    x = pictures()
    with torch.no_grad():
        ours = in_bfloat16(network, x)
    assert not ours.requires_grad
    assert error(ours, plain.double().forward_map(x.double())) < 0.03
    assert network.bn1.num_batches_tracked == 1


def test_what_is_not_a_number_stays_so(pair, pictures):
    network, _ = pair()
    x = pictures()
    x[0, 1, 2, 3] = torch.nan
    feature_map = in_bfloat16(network, x)
    assert is_fused(feature_map)
    assert feature_map.isnan().all()
    feature_map.float().sum().backward()
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert all(m.weight.grad.isnan().all() for m in convolutions)


def test_derivatives_of_derivatives_are_autograds(pair, pictures):
    network, theirs = pair()
    exact = copy.deepcopy(theirs).double()
    x = pictures()
    second = []
    for module, images in ((network, x), (theirs, x), (exact, x.double())):
        feature_map = module.forward_map(images) if module is exact else in_bfloat16(module, images)
        assert is_fused(feature_map) == (module is network)
        loss = feature_map.to(exact.conv1.weight.dtype).square().sum()
        first = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        second.append(torch.autograd.grad(penalty, module.stage3[0].conv2.weight)[0])
    ours, theirs, exact = second
    assert error(ours, exact) < 1.5 * error(theirs, exact)
    assert network.bn1.num_batches_tracked == 1


NO_KERNELS = {
    "evaluation": lambda network: network.eval(),
    "a part in evaluation": lambda network: network.stage1.eval(),
    "a mean over all batches": lambda network: setattr(network.bn1, "momentum", None),
    "two momenta": lambda network: setattr(network.bn1, "momentum", 0.2),
    "no running statistics": lambda network: setattr(network.bn1, "track_running_stats", False),
    "a hook": lambda network: network.stage2[0].conv1.register_forward_hook(lambda *_: None),
    "a hook of the way back": lambda network: network.bn1.register_full_backward_hook(
        lambda *_: None
    ),
    "other padding": lambda network: setattr(network.conv1, "padding_mode", "circular"),
    "weights in channels last": lambda network: network.to(memory_format=torch.channels_last),
    "weights in bfloat16": lambda network: network.bfloat16(),
}


def check_runs_as_written(network, x, dtype=torch.bfloat16):
    with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        before = copy.deepcopy(network)
        feature_map = network.forward_map(x)
        expected = ResNet32.forward_map(before, x)
    assert not is_fused(feature_map)
    assert feature_map.dtype == dtype
    torch.testing.assert_close(feature_map, expected)


@pytest.mark.parametrize("change", NO_KERNELS.values(), ids=NO_KERNELS)
def test_a_network_without_kernels_runs_as_written(pair, pictures, change):
    network, _ = pair()
    change(network)
    check_runs_as_written(network, pictures())


def test_images_without_kernels_run_as_written(pair, pictures):
    network, _ = pair()
    check_runs_as_written(network, pictures(), torch.float32)
    check_runs_as_written(network, pictures(images=1))
    check_runs_as_written(network, pictures(size=(4, 400)))
    check_runs_as_written(network, pictures().requires_grad_())
    check_runs_as_written(network.cpu(), pictures().cpu().as_subclass(torch.Tensor))
    check_runs_as_written(network.double(), torch.randn(2, 3, 8, 8).double(), torch.float64)


FAILURES = [OSError, RuntimeError, ImportError, AttributeError, KeyError, TypeError]


@pytest.mark.parametrize("kind", FAILURES)
def test_kernels_that_cannot_be_compiled_cost_speed_alone(pair, pictures, monkeypatch, kind):
    """A PyTorch that changed may fail in any of these ways."""

    def compile_them(*_):
        raise kind("libnvrtc.so.13:\ncannot open shared object file")

    network, plain = pair()
    monkeypatch.setattr(residual_network, "kernels_on", compile_them)
    x = pictures()
    told = (
        r"no kernels \(.*libnvrtc.so.13:.*cannot open shared object file.*\); the network runs as"
    )
    with pytest.warns(RuntimeWarning, match=told):
        feature_map = in_bfloat16(network, x)
    torch.testing.assert_close(feature_map, in_bfloat16(plain, x))
    check_runs_as_written(network, x)


def test_kernels_compiled_ahead_are_those_of_a_step(pair, pictures, kernels_of, monkeypatch):
    network, _ = pair()
    x, asked = pictures(), []

    def compile_them(_, kernels):
        asked.append(kernels)
        return kernels_of(kernels)

    monkeypatch.setattr(residual_network, "kernels_on", compile_them)
    compile_ahead(network, x)  # float32 has none
    assert not asked
    with torch.autocast(x.device.type, torch.bfloat16):
        compile_ahead(network, x)
    in_bfloat16(network, x)
    first, second = asked
    assert first == second


def test_bit_identical_runs_do_without_kernels(pair, pictures):
    network, _ = pair()
    torch.use_deterministic_algorithms(True)
    try:
        check_runs_as_written(network, pictures())
    finally:
        torch.use_deterministic_algorithms(False)


def test_function_transforms_do_without_kernels(pair, pictures):
    network, _ = pair()
    x, found = pictures(), []

    def loss(value):
        found.append(can_run(network, x))
        return value

    with torch.autocast(x.device.type, torch.bfloat16):
        assert can_run(network, x)
        torch.func.grad(loss)(torch.tensor(1.0))
    assert found == [False]


def test_state_and_copies_stay_those_of_the_network(pair, pictures):
    network, plain = pair()
    assert list(network.state_dict()) == list(plain.state_dict())
    twin = copy.deepcopy(network)
    nn.init.zeros_(twin.stage3[0].bn2.weight)
    assert is_fused(in_bfloat16(twin, pictures()))
    assert twin.bn1.num_batches_tracked == 1
    assert network.bn1.num_batches_tracked == 0
    plain.load_state_dict(twin.state_dict())
    assert plain.bn1.num_batches_tracked == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_cuda_graph_holds_a_step(pair, pictures):
    network, _ = pair()
    x = pictures(images=8, size=(32, 32))

    def step():
        network.zero_grad(set_to_none=False)
        in_bfloat16(network, x).float().square().sum().backward()

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
    for p in network.parameters():
        p.grad.zero_()
    graph.replay()
    for captured, before in zip(network.parameters(), eager, strict=True):
        assert error(captured.grad, before) < 1e-3
    assert network.bn1.num_batches_tracked == 4

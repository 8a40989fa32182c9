"""Every kernel of a residual network beside float64 autograd of the same numbers.

The error is that of the whole tensor, ‖ours − exact‖/‖exact‖. What a kernel stores is rounded to
bfloat16 once, 2⁻⁹; so is what it multiplies, and the exact numbers are rounded there as well. Sums
and weight gradients are added up in float32.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wcdas.backbones.resnet32_gpu.function import Network, Pass
from wcdas.backbones.resnet32_gpu.plan import (
    ACTIVATION,
    COPIES,
    NORMALISED,
    PLAIN,
    RELU_NORM,
    SHARED_BYTES,
    WEIGHT_PROGRAMS,
    Layer,
    Plan,
)
from wcdas.streams import Beside

IMAGES = 3
STORED, SUMMED = 2.5e-3, 2e-6
MULTIPLIED = 5e-4  # float32 and float64 round a value in ten thousand to another bfloat16

FROM_IMAGES = [
    Layer(3, 16, 1, 8, 8),
    Layer(1, 16, 1, 7, 10),
]
FROM_MAPS = [
    Layer(16, 16, 1, 34, 20),  # two tiles an image
    Layer(16, 32, 2, 7, 9),
    Layer(64, 64, 1, 13, 6),  # a row a tile, and more of them than programs
    Layer(64, 64, 1, 2, 70),  # a row is more than the 64 places that the warps take at once
    Layer(16, 16, 1, 5, 3),
    Layer(16, 32, 2, 8, 6),
    Layer(16, 64, 2, 5, 6),
    Layer(32, 32, 1, 20, 16),
    Layer(32, 32, 2, 6, 7),
    Layer(32, 64, 2, 9, 10),
    Layer(64, 64, 1, 4, 5),
]
SLOW = [*FROM_IMAGES[1:], *FROM_MAPS[4:]]  # to compile


def name_of(layer):
    return f"{layer.in_channels}-{layer.channels}-by-{layer.stride}-of-{layer.height}x{layer.width}"


def over(layers):
    marked = [
        pytest.param(layer, marks=[pytest.mark.slow] if layer in SLOW else []) for layer in layers
    ]
    return pytest.mark.parametrize("layer", marked, ids=map(name_of, layers))


over_maps, over_all = over(FROM_MAPS), over(FROM_IMAGES + FROM_MAPS)


def test_the_shapes_are_what_they_are_said_to_be():
    assert all(layer.shared_bytes <= SHARED_BYTES for layer in FROM_IMAGES + FROM_MAPS)
    assert FROM_MAPS[0].rows == FROM_MAPS[0].height // 2
    tall, wide = FROM_MAPS[2:4]
    assert tall.rows == tall.weight_rows == tall.in_rows == wide.rows == 1
    assert IMAGES * tall.height > WEIGHT_PROGRAMS[tall.channels]


class Case:
    """A layer with the one before it, where its input is a map; all numbers are bfloat16's."""

    def __init__(self, layer, kernels_of, device):
        self.layer, self.device = layer, device
        self.from_map = layer.in_channels >= 16
        before = Layer(3, layer.in_channels, 1, layer.height, layer.width)
        layers = (before, layer) if self.from_map else (layer,)
        self.i = len(layers) - 1
        plan = Plan(layers, device)
        weights = [self.normal(each.channels, each.in_channels, 3, 3) for each in layers]
        self.weight = weights[-1].double().requires_grad_()
        flat = torch.cat([*(weight.flatten() for weight in weights), weights[0].new_zeros(1)])
        self.gammas = [self.normal(each.channels).float() for each in layers]
        self.betas = [self.normal(each.channels).float() for each in layers]
        self.sums = torch.zeros(len(layers), COPIES, 4, 64, dtype=torch.float64, device=device)
        self.x_shape = (IMAGES, layer.height, layer.width, layer.in_channels)
        self.y_shape = (IMAGES, *layer.out_size, layer.channels)

        launch = kernels_of(tuple(self.kernels())).launch
        norms = [nn.BatchNorm2d(each.channels) for each in layers]
        network = Network(plan, norms, launch, Beside("weights", device))
        packed = flat.index_select(0, plan.fragments).split(plan.packed_sizes)
        self.step = Pass(network, IMAGES, self.gammas, self.betas, self.sums, packed)

    def kernels(self):
        layer = self.layer
        yield from (layer.forward(PLAIN), layer.weight_gradient(PLAIN), layer.weight_sum)
        yield from (layer.end(None), layer.backward_start)
        if self.from_map:
            yield from (layer.forward(RELU_NORM), layer.weight_gradient(RELU_NORM))
            yield from (layer.input_gradient(NORMALISED), layer.input_gradient(ACTIVATION))
            yield layer.end(layer)

    def normal(self, *shape):
        return torch.randn(*shape).bfloat16().to(self.device)

    def measure(self, i, *totals):
        """Let the copies of a layer's first sums add up to these."""
        for which, total in enumerate(totals):
            share = torch.rand(COPIES, 1, dtype=torch.float64, device=self.device)
            self.sums[i, :, which, : len(total)] = share / share.sum() * total.detach()

    def normalised(self, i, y):
        """z of layer i from its y, and the leaves y, γ, β; the layer's sums become those of y."""
        leaves = [t.double().requires_grad_() for t in (y, self.gammas[i], self.betas[i])]
        flat = leaves[0].flatten(0, 2)
        self.measure(i, flat.sum(0), flat.square().sum(0))
        return F.batch_norm(flat, None, None, *leaves[1:], training=True).view(y.shape), leaves

    def gradients(self, y, by_z):
        """∂L/∂y of the layer from ∂L/∂z; all four of its sums become those of y and ∂L/∂z."""
        z, leaves = self.normalised(self.i, y)
        by_y, by_gamma, by_beta = torch.autograd.grad(z, leaves, by_z.double())
        flat = y.double().flatten(0, 2)
        self.measure(self.i, flat.sum(0), flat.square().sum(0), by_beta, by_gamma)
        return by_y

    def convolved(self, u):
        u = u.double().permute(0, 3, 1, 2)
        y = F.conv2d(u, self.weight, stride=self.layer.stride, padding=1)
        return y.permute(0, 2, 3, 1)

    def shortcut(self, x):
        around = (self.layer.channels - self.layer.in_channels) // 2
        stride = self.layer.stride
        return F.pad(x.double()[:, ::stride, ::stride], (around, around))

    def added_up(self, i, *which):
        channels = self.step.layers[i].channels
        return self.sums[i][:, list(which), :channels].sum(0)


@pytest.fixture
def case(layer, kernels_of, device):
    return Case(layer, kernels_of, device)


def close(ours, exact, tolerance):
    assert ours.shape == exact.shape
    assert ours.isfinite().all()
    error = (ours.double() - exact).norm() / exact.norm()
    assert error < tolerance, f"{error:.1e}"


def check_forward(case, y, exact):
    close(y, exact, STORED)
    flat = y.double().flatten(0, 2)
    close(case.added_up(case.i, 0, 1), torch.stack([flat.sum(0), flat.square().sum(0)]), SUMMED)
    assert not case.sums[case.i, :, 2:].any()


@over_all
def test_forward(case):
    x = case.normal(*case.x_shape)
    check_forward(case, case.step.convolve(case.i, x, None), case.convolved(x))


@over_maps
def test_forward_of_a_batch_norm_and_relu(case):
    x = case.normal(*case.x_shape)
    z, _ = case.normalised(0, x)
    exact = case.convolved(z.relu().bfloat16())
    check_forward(case, case.step.convolve(1, x, 0), exact)


def check_gradient_before(case, ours, exact, z, leaves):
    """∂L/∂z of the batch norm before, with its two sums."""
    close(ours, exact, STORED)
    _, by_gamma, by_beta = torch.autograd.grad(z, leaves, ours.double())
    close(case.added_up(0, 2, 3), torch.stack([by_beta, by_gamma]), SUMMED)


@over_maps
def test_input_gradient_through_a_batch_norm_and_relu(case):
    y, by_z = case.normal(*case.y_shape), case.normal(*case.y_shape)
    by_y = case.gradients(y, by_z).bfloat16().double()
    source = case.normal(*case.x_shape)
    z, leaves = case.normalised(0, source)
    exact = torch.autograd.grad(case.convolved(z.relu()), z, by_y, retain_graph=True)[0]
    ours = case.step.go_back(1, by_z, y, 0, source)
    check_gradient_before(case, ours, exact, z, leaves)


@over_maps
def test_input_gradient_into_the_end_of_a_block(case):
    """The block's activation is the input of a layer and of a shortcut around two."""
    y, by_z = case.normal(*case.y_shape), case.normal(*case.y_shape)
    by_y = case.gradients(y, by_z).bfloat16().double()
    source, by_shortcut = case.normal(*case.x_shape), case.normal(*case.y_shape)
    z, leaves = case.normalised(0, source)
    activation = (z + case.normal(*case.x_shape)).relu()
    outputs = case.convolved(activation), case.shortcut(activation)
    exact = torch.autograd.grad(outputs, z, (by_y, by_shortcut.double()), retain_graph=True)[0]
    stored = activation.detach().bfloat16()
    ours = case.step.go_back(1, by_z, y, 0, source, stored, by_shortcut)
    check_gradient_before(case, ours, exact, z, leaves)


def check_weight_gradient(case, before):
    y, by_z = case.normal(*case.y_shape), case.normal(*case.y_shape)
    by_y = case.gradients(y, by_z).bfloat16().double()
    x = u = case.normal(*case.x_shape)
    if before is not None:
        u = case.normalised(before, x)[0].relu().bfloat16()
    exact = torch.autograd.grad(case.convolved(u), case.weight, by_y)[0]
    ours = case.step.weigh(case.i, x, before, by_z, y)
    close(ours, exact, MULTIPLIED)
    assert torch.equal(ours, case.step.weigh(case.i, x, before, by_z, y))


@over_all
def test_weight_gradient(case):
    check_weight_gradient(case, None)


@over_maps
def test_weight_gradient_of_a_batch_norm_and_relu(case):
    check_weight_gradient(case, 0)


@pytest.mark.parametrize("with_shortcut", [False, True])
@over_maps
def test_the_end_of_a_block(case, with_shortcut):
    y, x = case.normal(*case.y_shape), case.normal(*case.x_shape)
    z, _ = case.normalised(1, y)
    exact = (z + case.shortcut(x) if with_shortcut else z).relu()
    ours = case.step.end_block(1, y, case.layer if with_shortcut else None, x)
    close(ours, exact, STORED)


@over_all
def test_the_start_of_the_backward_pass(case):
    y, gradient = case.normal(*case.y_shape), case.normal(*case.y_shape)
    activation = case.normal(*case.y_shape).relu()
    z, leaves = case.normalised(case.i, y)
    by_z = case.step.begin_backward(case.i, gradient, activation, y)
    assert torch.equal(by_z, gradient * (activation > 0))
    _, by_gamma, by_beta = torch.autograd.grad(z, leaves, by_z.double())
    close(case.added_up(case.i, 2, 3), torch.stack([by_beta, by_gamma]), SUMMED)


@pytest.mark.parametrize("layer", [Layer(16, 32, 2, 7, 9)], ids=name_of)
def test_what_is_not_a_number_stays_so(case):
    """And reaches no more than the places that read it."""
    x, y = case.normal(*case.x_shape), case.normal(*case.y_shape)
    case.normalised(0, x)
    case.normalised(1, y)
    x[1, 2, 4, 5] = y[2, 1, 3, 6] = torch.nan
    expected = torch.zeros(case.y_shape, dtype=torch.bool, device=case.device)

    end = case.step.end_block(1, y, case.layer, x).isnan()
    expected[1, 1, 2, 5 + 8] = expected[2, 1, 3, 6] = True
    assert torch.equal(end, expected)

    by_weight = case.step.weigh(1, x, 0, torch.ones_like(y), y).isnan()
    expected_by_weight = torch.zeros_like(by_weight)
    expected_by_weight[6] = True
    expected_by_weight[:, 5, 1, 1] = True  # row 2 and column 4 are the centre of the one window
    assert torch.equal(by_weight, expected_by_weight)

    expected.zero_()
    expected[1, 1, 2] = True
    assert torch.equal(case.step.convolve(1, x, 0).isnan(), expected)
    assert case.added_up(1, 0, 1).isnan().all()
    assert torch.equal(case.step.convolve(1, x, None).isnan(), expected)

"""Every kernel of the residual network beside float64 autograd of the same numbers.

They run on a GPU, or in Triton's interpreter (see `test_in_the_interpreter.py`). The error is
that of the whole tensor, ‖ours − exact‖/‖exact‖: float32 has 2⁻²⁴ a rounding, three products of
TF32 on a GPU about 2⁻²¹; bfloat16 has 2⁻⁹, and a gradient passes two of these roundings.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wcdas.kernels.batch_norm import statistics
from wcdas.kernels.convolution_forward import convolution
from wcdas.kernels.input_gradient import Normalised, Source, input_gradient
from wcdas.kernels.launches import Launch
from wcdas.kernels.partial_sums import sum_rows
from wcdas.kernels.residual import residual, residual_gradient
from wcdas.kernels.triton_language import INTERPRETED
from wcdas.kernels.weight_gradient import weight_gradient

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU or TRITON_INTERPRET=1"
)

# The interpreter cuts a bfloat16 off instead of rounding it.
TOLERANCE = (
    {torch.float32: 2e-6, torch.bfloat16: 1.6e-2}
    if INTERPRETED
    else {torch.float32: 5e-6, torch.bfloat16: 8e-3}
)
FEW = Launch(32, 2, channels=16)  # few programs of several blocks; the tables give many of one
over_shapes = pytest.mark.parametrize(
    ("in_channels", "channels", "stride", "height", "width", "launch"),
    [
        (3, 16, 1, 8, 8, None),
        (3, 16, 1, 8, 8, FEW),
        (16, 16, 1, 6, 10, FEW),
        (16, 32, 2, 6, 10, None),
        (16, 32, 2, 7, 9, FEW),
        (32, 32, 1, 8, 8, None),
        (32, 64, 2, 8, 8, FEW),
        (64, 64, 1, 5, 4, None),
    ],
)
over_dtypes = pytest.mark.parametrize("dtype", TOLERANCE)


@pytest.fixture(autouse=True)
def _float32_means_float32():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def close(ours, exact, dtype):
    assert ours.isfinite().all()
    error = (ours.double() - exact).norm() / exact.norm()
    assert error < TOLERANCE[dtype], f"{error:.1e}"


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


def norm_of(channels):
    """μ, r, γr, β."""
    mean, r, gamma, beta = (
        normal(channels),
        normal(channels).exp(),
        normal(channels),
        normal(channels),
    )
    return torch.stack([mean, r, gamma * r, beta])


def norm_from(y, gamma, beta):
    """The `norm` of y (…, channels), and z by float64 torch with y, γ and β as leaves."""
    y, gamma, beta = (t.double().requires_grad_() for t in (y, gamma, beta))
    flat = y.flatten(0, -2)
    z = F.batch_norm(flat, None, None, gamma, beta, training=True).view(y.shape)
    r = (flat.var(0, correction=0) + 1e-5).rsqrt()
    norm = torch.stack([flat.mean(0), r, gamma * r, beta]).detach().float()
    return SimpleNamespace(norm=norm, z=z, leaves=(y, gamma, beta))


def relu_norm(x, norm, dtype):
    """max(z, 0), rounded as the kernel rounds it."""
    return ((x.float() - norm[0]) * norm[2] + norm[3]).relu().to(dtype)


def packed(weight):
    return weight.permute(2, 3, 1, 0).flatten(0, 1).contiguous()


def reference(x, weight, stride):
    y = F.conv2d(x.double().permute(0, 3, 1, 2), weight.double(), stride=stride, padding=1)
    return y.permute(0, 2, 3, 1)


@over_dtypes
@pytest.mark.parametrize("normalise", [False, True])
@over_shapes
def test_convolution(in_channels, channels, stride, height, width, normalise, dtype, launch):
    x = normal(3, height, width, in_channels, dtype=dtype)
    weight = normal(channels, in_channels, 3, 3, dtype=dtype)
    norm = norm_of(in_channels) if normalise else None
    y, measured = convolution(x, norm, packed(weight), stride, launch)
    exact = reference(relu_norm(x, norm, dtype) if normalise else x, weight, stride)
    close(y, exact, dtype)

    theirs = nn.BatchNorm2d(channels, momentum=0.3).to(DEVICE)
    nn.init.normal_(theirs.weight)
    nn.init.normal_(theirs.bias)
    ours = nn.BatchNorm2d(channels, momentum=0.3).to(DEVICE)
    ours.load_state_dict(theirs.state_dict())
    norm = statistics(measured, ours, ours.weight, ours.bias)
    close(norm, norm_from(y, ours.weight, ours.bias).norm.double(), torch.float32)
    theirs.double()(y.double().permute(0, 3, 1, 2))
    close(ours.running_mean, theirs.running_mean, torch.float32)
    close(ours.running_var, theirs.running_var, torch.float32)


def test_the_variance_of_a_far_mean_is_not_cancelled():
    x = torch.ones(3, 8, 8, 16, device=DEVICE)
    x[..., 0] += 1e-3 * normal(3, 8, 8)
    weight = torch.zeros(16, 16, 3, 3, device=DEVICE)
    weight[:, 0, 1, 1], weight[:, 1, 1, 1] = 1, 100
    y, measured = convolution(x, None, packed(weight), 1, Launch(32, 2))
    module = nn.BatchNorm2d(16).to(DEVICE)
    norm = statistics(measured, module, module.weight, module.bias)
    exact = (y.double().flatten(0, 2).var(0, correction=0) + 1e-5).rsqrt()
    torch.testing.assert_close(norm[1].double(), exact, rtol=1e-4, atol=0)


@over_dtypes
@pytest.mark.parametrize("kind", ["given", "normalised", "activation"])
@over_shapes
def test_input_gradient(in_channels, channels, stride, height, width, kind, dtype, launch):
    x = normal(3, height, width, in_channels, dtype=dtype).double().requires_grad_()
    weight = normal(channels, in_channels, 3, 3, dtype=dtype)
    y = (0.3 * reference(x, weight, stride)).detach().to(dtype)
    gradient = normal(*y.shape, dtype=dtype)
    behind = norm_from(y, normal(channels), normal(channels))
    by_y, by_gamma, by_beta = torch.autograd.grad(behind.z, behind.leaves, gradient.double())
    output = Normalised(gradient, y, behind.norm, torch.stack([by_beta, by_gamma]).float())

    a = x
    source, shortcut = None, None
    before = norm_from(normal(*x.shape, dtype=dtype), normal(in_channels), normal(in_channels))
    if kind == "normalised":
        a = before.z.relu()
        source = Source(before.leaves[0].detach().to(dtype), before.norm)
    if kind == "activation":
        a = (before.z + normal(*x.shape)).relu()
        source = Source(before.leaves[0].detach().to(dtype), before.norm, a.detach().to(dtype))
    exact = torch.autograd.grad(reference(a, weight, stride), a, by_y)[0]
    if kind == "activation":
        shortcut = normal(*y.shape, dtype=dtype)
        around = (channels - in_channels) // 2
        exact[:, ::stride, ::stride] += shortcut.double()[..., around : around + in_channels]

    ours, partials = input_gradient(
        output, packed(weight), stride, (height, width), source, shortcut, launch
    )
    if source is None:
        close(ours, exact, dtype)
        return
    exact = torch.where(a > 0, exact, 0)
    close(ours, exact, dtype)
    exact_sums = torch.autograd.grad(before.z, before.leaves, ours.double())
    ours_sums = sum_rows(partials)
    close(ours_sums[0], exact_sums[2], torch.float32)
    close(ours_sums[1], exact_sums[1], torch.float32)


@over_dtypes
@pytest.mark.parametrize("normalise", [False, True])
@over_shapes
def test_weight_gradient(in_channels, channels, stride, height, width, normalise, dtype, launch):
    x = normal(3, height, width, in_channels, dtype=dtype)
    norm = norm_of(in_channels) if normalise else None
    weight = normal(channels, in_channels, 3, 3, dtype=dtype).double().requires_grad_()
    u = relu_norm(x, norm, dtype) if normalise else x
    convolved = reference(u, weight, stride)
    y = (0.3 * convolved).detach().to(dtype)
    gradient = normal(*y.shape, dtype=dtype)
    behind = norm_from(y, normal(channels), normal(channels))
    by_y, by_gamma, by_beta = torch.autograd.grad(behind.z, behind.leaves, gradient.double())
    output = Normalised(gradient, y, behind.norm, torch.stack([by_beta, by_gamma]).float())
    exact = torch.autograd.grad(convolved, weight, by_y)[0]

    ours = weight_gradient(x, norm, output, stride, launch)
    close(ours, exact, dtype)
    if channels == 16:
        assert torch.equal(ours, weight_gradient(x, norm, output, stride, launch))


@over_dtypes
@pytest.mark.parametrize(
    ("in_channels", "channels", "stride"), [(0, 16, 1), (16, 16, 1), (16, 32, 2), (32, 64, 2)]
)
def test_residual(in_channels, channels, stride, dtype):
    y = normal(3, 4, 5, channels, dtype=dtype)
    before = norm_from(y, normal(channels), normal(channels))
    exact, x = before.z, None
    if in_channels:
        x = (
            normal(3, 7, 9, in_channels, dtype=dtype)
            if stride == 2
            else normal(*y.shape, dtype=dtype)
        )
        around = 2 * ((channels - in_channels) // 2,)
        exact = exact + F.pad(x.double()[:, ::stride, ::stride], around)
    exact = exact.relu()
    ours = residual(y, before.norm, x, stride)
    close(ours, exact, dtype)

    gradient = normal(*y.shape, dtype=dtype)
    by_z, partials = residual_gradient(gradient, ours, y, before.norm)
    close(by_z, gradient.double() * (exact > 0), dtype)
    sums = torch.autograd.grad(before.z, before.leaves, by_z.double())
    close(sum_rows(partials)[0], sums[2], torch.float32)
    close(sum_rows(partials)[1], sums[1], torch.float32)

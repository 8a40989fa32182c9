"""Batch norm around a convolution: what the kernels share, and its statistics from partial ones.

A batch norm of a step is a float32 matrix `norm` of 4 × channels: μ, r, γr and β, where
r = 1/√(σ² + ε). With M places of a channel and x̂ = (y − μ)r,

    z = γr(y − μ) + β,   ∂L/∂y = γr ∂L/∂z + B(y − μ) + C,
    B = −γr² Σ x̂ ∂L/∂z / M,   C = −γr Σ ∂L/∂z / M.
"""

from typing import NamedTuple

from torch import Tensor, nn

from wcdas.kernels.triton_language import jit, tl


@jit
def normalised(y, mean, scale, shift):  # type: ignore[no-untyped-def]
    """z, in float32."""
    return (y.to(tl.float32) - mean) * scale + shift


@jit
def gradient_coefficients(norm, sums, channel, places, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """μ, γr, B and C of these channels, so that ∂L/∂y = γr ∂L/∂z + B(y − μ) + C."""
    mean = tl.load(norm + channel)
    inverse_deviation = tl.load(norm + CHANNELS + channel)
    scale = tl.load(norm + 2 * CHANNELS + channel)
    offset = -scale * tl.load(sums + channel) / places
    slope = -scale * inverse_deviation * tl.load(sums + CHANNELS + channel) / places
    return mean[None, :], scale[None, :], slope[None, :], offset[None, :]


@jit
def gradient_of_input(gradient, y, mean, scale, slope, offset):  # type: ignore[no-untyped-def]
    """∂L/∂y, in float32."""
    return gradient.to(tl.float32) * scale + ((y.to(tl.float32) - mean) * slope + offset)


@jit
def _statistics_kernel(  # type: ignore[no-untyped-def]
    partials,
    gamma,
    beta,
    running_mean,
    running_variance,
    norm,
    pixels,
    programs,
    pixels_each,
    momentum,
    eps,
    CHANNELS: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PROGRAMS: tl.constexpr,
):
    channel = tl.program_id(0) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)
    program = tl.arange(0, BLOCK_PROGRAMS)
    there = (program < programs)[:, None]
    places = partials + program[:, None] * (2 * CHANNELS) + channel[None, :]
    means = tl.load(places, mask=there, other=0.0)
    squares = tl.load(places + CHANNELS, mask=there, other=0.0)
    counts = tl.minimum(pixels - program * pixels_each, pixels_each)
    counts = tl.where(there, counts[:, None].to(tl.float32), 0.0)

    mean = tl.sum(counts * means, 0) / pixels
    distance = means - mean[None, :]
    squares = tl.sum(squares + counts * distance * distance, 0)
    inverse_deviation = 1 / tl.sqrt(squares / pixels + eps)

    tl.store(norm + channel, mean)
    tl.store(norm + CHANNELS + channel, inverse_deviation)
    scale = tl.load(gamma + channel).to(tl.float32) * inverse_deviation
    tl.store(norm + 2 * CHANNELS + channel, scale)
    tl.store(norm + 3 * CHANNELS + channel, tl.load(beta + channel).to(tl.float32))

    old_mean = tl.load(running_mean + channel)
    old_variance = tl.load(running_variance + channel)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean))
    variance = squares / (pixels - 1)
    tl.store(running_variance + channel, old_variance + momentum * (variance - old_variance))


class Measured(NamedTuple):
    """What the programs of a convolution saw of its output.

    Args:
        partials: (programs, 2, channels), the mean and the squared distances to it.
        pixels: of all programs.
        pixels_each: of one program; the last may have fewer.
    """

    partials: Tensor
    pixels: int
    pixels_each: int


def statistics(measured: Measured, module: nn.BatchNorm2d, gamma: Tensor, beta: Tensor) -> Tensor:
    """`norm` from the mean and the squared distances to it of every program's pixels.

    Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983: with n_p pixels,
    mean m_p and squared distances s_p of program p, Mμ = Σ n_p m_p and
    Mσ² = Σ (s_p + n_p (m_p − μ)²).

    The running mean and variance of `module` are brought up to date.
    """
    partials, pixels, pixels_each = measured
    programs, _, channels = partials.shape
    norm = partials.new_empty(4, channels)
    _statistics_kernel[(channels // 8,)](
        partials,
        gamma,
        beta,
        module.running_mean,
        module.running_var,
        norm,
        pixels,
        programs,
        pixels_each,
        module.momentum,
        module.eps,
        CHANNELS=channels,
        BLOCK_CHANNELS=8,
        BLOCK_PROGRAMS=1 << (programs - 1).bit_length(),
    )
    return norm


def padded(channels: int) -> int:
    """The next power of two, at least the 16 that a product of matrices takes."""
    return max(16, 1 << (channels - 1).bit_length())

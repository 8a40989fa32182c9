"""What holds for every family, against numerical integration of its density."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wcdas.circular import (
    CircularDistribution,
    SymmetricWrappedStable,
    VonMises,
    WrappedCauchy,
    WrappedNormal,
)


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def families(loc: float = 0.0) -> list[CircularDistribution]:
    return [
        WrappedCauchy(f64(0.0, 0.3, 0.9, 0.99), loc),
        WrappedNormal(f64(0.0, 0.02, 0.3, 0.9, 0.999), loc),
        VonMises(f64(0.0, 0.1, 3.0, 80.0, 1000.0), loc),
        SymmetricWrappedStable(f64(0.0, 0.3, 0.7, 0.9, 0.95), f64(1.2, 0.5, 0.7, 1.3, 1.9), loc),
    ]


every_family = pytest.mark.parametrize(
    "distribution", families(0.4), ids=lambda distribution: type(distribution).__name__
)

# The trapezoid rule is exact for periodic functions once the grid resolves them.
GRID = torch.arange(-2048, 2048, dtype=torch.float64) * (math.pi / 2048)


def integral(values: Tensor) -> Tensor:
    return values.mean(0) * 2 * math.pi


@every_family
def test_density_integrates_to_one(distribution: CircularDistribution) -> None:
    total = integral(distribution.prob(GRID[:, None]))
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-12)


@every_family
def test_density_is_periodic_and_symmetric(distribution: CircularDistribution) -> None:
    angle = torch.linspace(0.0, 3.0, 7, dtype=torch.float64)[:, None]
    density = distribution.prob(0.4 + angle)
    torch.testing.assert_close(distribution.prob(0.4 - angle), density, rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(
        distribution.prob(0.4 + angle - 4 * math.pi), density, rtol=1e-9, atol=1e-12
    )


@every_family
@pytest.mark.parametrize("n", [0, 1, 2, 5, -3])
def test_moments_integrate_the_density(distribution: CircularDistribution, n: int) -> None:
    density, angle = distribution.prob(GRID[:, None]), GRID[:, None]
    expected = {
        distribution.central_moment: torch.cos(n * (angle - 0.4)),
        distribution.cosine_moment: torch.cos(n * angle),
        distribution.sine_moment: torch.sin(n * angle),
    }
    for moment, wave in expected.items():
        torch.testing.assert_close(moment(n), integral(density * wave), rtol=0, atol=1e-12)


@every_family
def test_moments_of_a_tensor_of_orders(distribution: CircularDistribution) -> None:
    n = torch.tensor([[0, 1, 4], [3, 2, 7]])
    for moment in (distribution.central_moment, distribution.cosine_moment):
        assert moment(1).shape == distribution.batch_shape
        expected = torch.stack([moment(int(order)) for order in n.flatten()], -1)
        torch.testing.assert_close(moment(n), expected.unflatten(-1, n.shape))


@every_family
def test_mean_and_variance(distribution: CircularDistribution) -> None:
    torch.testing.assert_close(
        distribution.mean, torch.full(distribution.batch_shape, 0.4).double()
    )
    length = integral(distribution.prob(GRID[:, None]) * torch.cos(GRID[:, None] - 0.4))
    torch.testing.assert_close(distribution.mean_resultant_length, length, rtol=0, atol=1e-12)
    torch.testing.assert_close(distribution.variance, 1 - length, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loc", [0.0, 0.4, -3.0, 8.0])
def test_cdf_integrates_the_density(loc: float) -> None:
    nodes, weights = (torch.as_tensor(array) for array in np.polynomial.legendre.leggauss(14))
    edges = torch.linspace(-math.pi, math.pi, 401, dtype=torch.float64)
    half = (edges[1:] - edges[:-1]) / 2
    angles = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    for distribution in families(loc):
        pieces = (distribution.prob(angles[..., None]) * weights[:, None]).sum(1) * half[:, None]
        cdf = distribution.cdf(edges[:, None])
        torch.testing.assert_close(cdf[1:], pieces.cumsum(0), rtol=0, atol=1e-11)
        torch.testing.assert_close(cdf[0], torch.zeros_like(cdf[0]), rtol=0, atol=1e-14)
        torch.testing.assert_close(cdf[-1], torch.ones_like(cdf[0]), rtol=0, atol=1e-14)


@every_family
def test_cdf_beyond_the_circle(distribution: CircularDistribution) -> None:
    assert distribution.cdf(torch.tensor(-5.0)).abs().max() < 1e-14
    assert (distribution.cdf(torch.tensor(5.0)) - 1).abs().max() < 1e-14


@settings(max_examples=50)
@given(st.floats(-20, 20), st.floats(-math.pi, math.pi), st.floats(-math.pi, math.pi))
def test_cdf_never_falls(loc: float, first: float, second: float) -> None:
    low, high = f64(min(first, second)), f64(max(first, second))
    for distribution in families(loc):
        assert (distribution.cdf(high) - distribution.cdf(low)).min() > -1e-14


@every_family
def test_samples(distribution: CircularDistribution) -> None:
    torch.manual_seed(0)
    samples = distribution.sample((40_000,))
    assert samples.shape == (40_000, *distribution.batch_shape)
    assert samples.dtype == torch.float64
    assert samples.min() >= -math.pi
    assert samples.max() < math.pi
    for n in (1, 2, 3):
        # The variance of cos nθ is at most 1/2 + |α_2n|/2 ≤ 1, five standard errors 0.025.
        for wave, moment in (
            (torch.cos, distribution.cosine_moment),
            (torch.sin, distribution.sine_moment),
        ):
            error = wave(n * samples).mean(0) - moment(n)
            assert error.abs().max() < 0.025


@every_family
def test_gradients(distribution: CircularDistribution) -> None:
    # Away from the uniform distribution, which has its own test.
    inputs = [getattr(distribution, name)[1:4].clone() for name in distribution.arg_constraints]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    angle = f64(-2.0, 0.5, 2.9).requires_grad_()
    family: Callable[..., CircularDistribution] = type(distribution)
    n = torch.tensor([1, 3])

    def outputs(angle: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        built = family(*parameters, validate_args=False)
        return built.log_prob(angle), built.cdf(angle), built.cosine_moment(n), built.variance

    assert torch.autograd.gradcheck(outputs, (angle, *inputs), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("family", [WrappedCauchy, WrappedNormal, VonMises])
def test_gradients_at_the_uniform_distribution(family: type[CircularDistribution]) -> None:
    # f = (1 + 2 α₁ cos θ + …)/2π with α₁ = ρ, or κ/2 for von Mises.
    concentration = f64(0.0).requires_grad_()
    angle = torch.tensor(2.0, dtype=torch.float64)
    slope = 1.0 if family is VonMises else 2.0
    (log_prob,) = torch.autograd.grad(family(concentration).log_prob(angle), concentration)
    torch.testing.assert_close(log_prob, f64(slope * math.cos(2.0)))
    (cdf,) = torch.autograd.grad(family(concentration).cdf(angle), concentration)
    torch.testing.assert_close(cdf, f64(slope * math.sin(2.0) / (2 * math.pi)))
    (moment,) = torch.autograd.grad(family(concentration).central_moment(1), concentration)
    torch.testing.assert_close(moment, f64(slope / 2))


@pytest.mark.parametrize("family", [WrappedCauchy, WrappedNormal])
def test_rsample_is_reparameterised(family: type[CircularDistribution]) -> None:
    torch.manual_seed(0)
    concentration = f64(0.6).requires_grad_()
    loc = f64(0.2).requires_grad_()
    samples = family(concentration, loc).rsample((100_000,))
    moment = torch.cos(samples - 0.2).mean()
    gradient, loc_gradient = torch.autograd.grad(moment, (concentration, loc))
    torch.testing.assert_close(gradient, f64(1.0), rtol=0.03, atol=0)
    torch.testing.assert_close(loc_gradient, f64(0.0), rtol=0, atol=0.02)


@every_family
def test_float32_in_float32_out(distribution: CircularDistribution) -> None:
    names = list(distribution.arg_constraints)
    single = type(distribution)(*(getattr(distribution, name).float() for name in names))
    angle = torch.tensor([[-3.0], [-0.2], [1.0]])
    for method in ("log_prob", "prob", "cdf"):
        result = getattr(single, method)(angle)
        assert result.dtype == torch.float32
        expected = getattr(distribution, method)(angle.double()).float()
        torch.testing.assert_close(result, expected, rtol=2e-3, atol=1e-4)
    torch.testing.assert_close(
        single.central_moment(2), distribution.central_moment(2).float(), rtol=1e-5, atol=1e-6
    )
    samples = single.sample((1000,))
    assert samples.dtype == torch.float32
    assert (samples >= -math.pi).all()
    assert (samples < math.pi).all()
    fitted = type(single).fit(samples.mT)
    assert fitted.concentration.dtype == torch.float32


@every_family
def test_shapes(distribution: CircularDistribution) -> None:
    size = distribution.batch_shape[0]
    wide = distribution.expand((3, size))
    assert type(wide) is type(distribution)
    assert wide.batch_shape == (3, size)
    assert wide.sample((2,)).shape == (2, 3, size)
    angle = torch.linspace(-3, 3, 4, dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(
        wide.log_prob(angle), distribution.log_prob(angle).expand(4, 3, size)
    )
    assert wide.cdf(angle).shape == (4, 3, size)


def test_numbers_follow_the_default_dtype() -> None:
    assert WrappedCauchy(0).log_prob(torch.tensor(1.0)).dtype == torch.float32
    assert WrappedNormal(0.5, f64(0.1)).concentration.dtype == torch.float64


@pytest.mark.parametrize("family", [WrappedCauchy, WrappedNormal])
@pytest.mark.parametrize("concentration", [1.0, -0.1, math.nan])
def test_bad_concentration(family: type[CircularDistribution], concentration: float) -> None:
    with pytest.raises(ValueError, match=r"parameter concentration .*\n?.*HalfOpenInterval"):
        family(concentration)


def test_bad_von_mises_concentration() -> None:
    with pytest.raises(ValueError, match=r"parameter concentration .*GreaterThanEq"):
        VonMises(-0.1)


@every_family
def test_nan_value_is_refused(distribution: CircularDistribution) -> None:
    for method in (distribution.log_prob, distribution.cdf):
        with pytest.raises(ValueError, match="within the support"):
            method(torch.tensor(math.nan))


@pytest.mark.parametrize("family", [WrappedCauchy, WrappedNormal])
def test_fit_of_one_repeated_sample_is_refused(family: type[CircularDistribution]) -> None:
    with pytest.raises(ValueError, match="parameter concentration"):
        family.fit(torch.full((5,), 0.3))


@pytest.mark.parametrize("family", [WrappedCauchy, WrappedNormal, VonMises])
def test_fit_moments_recovers_the_parameters(family: type[CircularDistribution]) -> None:
    truth = family._from_variance(f64(0.999, 0.7, 0.2, 0.01, 1e-4))
    fitted = family.fit_moments(truth.cosine_moment(torch.arange(1, 65)))
    torch.testing.assert_close(fitted.concentration, truth.concentration, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(fitted.loc, torch.zeros_like(truth.loc))

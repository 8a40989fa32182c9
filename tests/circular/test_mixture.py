import math

import pytest
import torch
from torch.distributions import Categorical

from wcdas.circular import Mixture, VonMises, WrappedNormal

GRID = torch.arange(-2048, 2048, dtype=torch.float64) * (math.pi / 2048)


@pytest.fixture
def mixture() -> Mixture:
    rho = torch.tensor([[0.1, 0.5, 0.9], [0.3, 0.3, 0.6]], dtype=torch.float64)
    loc = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
    weights = torch.tensor([[1.0, 1.0, 2.0], [0.2, 0.7, 0.1]], dtype=torch.float64)
    return Mixture(Categorical(weights), WrappedNormal(rho, loc))


def integral(values: torch.Tensor) -> torch.Tensor:
    return values.mean(0) * 2 * math.pi


def test_equal_weights_give_the_mean_of_the_moments() -> None:
    kernels = VonMises(torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64))
    mixture = Mixture(Categorical(torch.ones(3, dtype=torch.float64)), kernels)
    n = torch.arange(1, 6)
    torch.testing.assert_close(mixture.cosine_moment(n), kernels.cosine_moment(n).mean(0))


def test_moments_integrate_the_density(mixture: Mixture) -> None:
    density = mixture.prob(GRID[:, None])
    torch.testing.assert_close(integral(density), torch.ones(2, dtype=torch.float64))
    for n in (1, 4):
        wave = n * GRID[:, None]
        cosine, sine = integral(density * wave.cos()), integral(density * wave.sin())
        torch.testing.assert_close(mixture.cosine_moment(n), cosine, rtol=0, atol=1e-13)
        torch.testing.assert_close(mixture.sine_moment(n), sine, rtol=0, atol=1e-13)


def test_moments_of_a_tensor_of_orders(mixture: Mixture) -> None:
    n = torch.tensor([[0, 1], [2, 5]])
    for moment in (mixture.cosine_moment, mixture.sine_moment):
        expected = torch.stack([moment(int(order)) for order in n.flatten()], -1)
        torch.testing.assert_close(moment(n), expected.unflatten(-1, n.shape))


def test_mean_and_variance_are_circular(mixture: Mixture) -> None:
    resultant = integral(mixture.prob(GRID[:, None]) * torch.exp(1j * GRID[:, None]))
    torch.testing.assert_close(mixture.mean, resultant.angle())
    torch.testing.assert_close(mixture.mean_resultant_length, resultant.abs())
    torch.testing.assert_close(mixture.variance, 1 - resultant.abs())


def test_cdf_samples_and_expand(mixture: Mixture) -> None:
    torch.manual_seed(0)
    samples = mixture.sample((40_000,))
    angle = torch.tensor(0.5, dtype=torch.float64)
    below = (samples < 0.5).double().mean(0)
    torch.testing.assert_close(mixture.cdf(angle.expand(2)), below, rtol=0, atol=0.0125)
    wide = mixture.expand((5, 2))
    assert wide.cosine_moment(torch.arange(4)).shape == (5, 2, 4)

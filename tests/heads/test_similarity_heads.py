"""Cosine, t-vMF and wrapped Normal heads against their definitions."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy import special, stats

from wcdas import CosineHead, TvMFHead, WNDASHead


def cosines(head, features):
    return F.normalize(features) @ F.normalize(head.weight).mT


def test_cosine_logits():
    head = CosineHead(6, 4, scale=30.0).double()
    features = torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(head(features), 30 * cosines(head, features))


@pytest.mark.parametrize("kappa", [0.5, 16.0, 128.0])
def test_t_vmf_from_its_definition(kappa):
    """Equation 12 of Kobayashi: a t kernel on 1 − cos θ, brought to [−1, 1]."""
    head = TvMFHead(6, 4, kappa=kappa, scale=1.0).double()
    features = torch.randn(5, 6, dtype=torch.float64)
    kernel = 1 / (1 + kappa * (1 - cosines(head, features)))
    low, high = 1 / (1 + 2 * kappa), 1.0
    torch.testing.assert_close(head(features), 2 * (kernel - low) / (high - low) - 1)


def test_t_vmf_trains_kappa():
    head = TvMFHead(6, 4, trainable=True)
    torch.testing.assert_close(head.concentration, torch.full((4,), 16.0))
    head.loss(torch.randn(5, 6), torch.arange(5) % 4).backward()
    assert (head.w_kappa.grad != 0).all()
    assert not dict(TvMFHead(6, 4).named_parameters()).keys() & {"w_kappa"}


@pytest.mark.parametrize("w_rho", [-8.0, -2.0, 0.0, 2.0, 6.0])
def test_wndas_is_von_mises_with_first_moment_rho(w_rho):
    head = WNDASHead(6, 4, init=w_rho, scale=1.0, start="paper").double()
    features = torch.randn(5, 6, dtype=torch.float64)
    kappa = head.kappa.detach().numpy()
    assert special.ive(1, kappa) / special.ive(0, kappa) == pytest.approx(
        special.expit(w_rho), rel=1e-10
    )
    angle = cosines(head, features).acos().detach().numpy()
    torch.testing.assert_close(
        head(features).detach(),
        torch.from_numpy(stats.vonmises.pdf(angle, kappa)),
        rtol=1e-8,
        atol=0,
    )


@pytest.mark.parametrize("w_rho", [-25.0, -10.0, 10.0, 25.0])
@pytest.mark.parametrize("angle", [0.0, 1e-3, 1.0, math.pi])
def test_wndas_is_finite_at_the_extremes(w_rho, angle):
    head = WNDASHead(2, 2, init=w_rho, scale=250.0)
    head.weight.data = torch.eye(2)
    features = torch.tensor([[math.cos(angle), math.sin(angle)]], requires_grad=True)
    loss = head.loss(features, torch.tensor([0]))
    loss.backward()
    assert loss.isfinite()
    assert all(t.grad.isfinite().all() for t in (features, *head.parameters()))

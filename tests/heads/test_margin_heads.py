"""The margin heads beside pytorch-metric-learning's losses."""

import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as reference

from wcdas import create_head


def pair(name: str):
    head = {
        "l-softmax": lambda: create_head(name, 16, 12, margin=4),
        "sphereface": lambda: create_head(name, 16, 12, margin=3),
        "am-softmax": lambda: create_head(name, 16, 12, margin=0.2, scale=20.0),
        "arcface": lambda: create_head(name, 16, 12, margin=0.5, scale=20.0),
    }[name]()
    other = {
        "l-softmax": lambda: reference.LargeMarginSoftmaxLoss(12, 16, margin=4),
        "sphereface": lambda: reference.SphereFaceLoss(12, 16, margin=3),
        "am-softmax": lambda: reference.CosFaceLoss(12, 16, margin=0.2, scale=20),
        "arcface": lambda: reference.ArcFaceLoss(12, 16, margin=math.degrees(0.5), scale=20),
    }[name]()
    return head.double(), other.double()


@pytest.mark.parametrize("name", ["l-softmax", "sphereface", "am-softmax", "arcface"])
@pytest.mark.parametrize("seed", range(5))
def test_equal_to_pytorch_metric_learning(name, seed):
    torch.manual_seed(seed)
    head, other = pair(name)
    features = torch.randn(64, 16, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(12, (64,))
    features.data[:16] = -head.weight.detach()[labels[:16]] + 0.3 * features.data[:16]  # θ near π
    other.W.data = head.weight.detach().mT.clone()
    ours, theirs = head.loss(features, labels), other(features, labels)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    to_features, to_weight = torch.autograd.grad(ours, (features, head.weight))
    expected_features, expected_weight = torch.autograd.grad(theirs, (features, other.W))
    torch.testing.assert_close(to_features, expected_features, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(to_weight, expected_weight.mT, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(head(features), other.get_logits(features), rtol=1e-6, atol=1e-9)


def double(cosine):
    """ψ of m = 2 in the Caffe layers of L-Softmax and SphereFace."""
    return 2 * np.sign(cosine) * cosine**2 - 1


def quadruple(cosine):
    """ψ of m = 4 there."""
    sign_3 = np.sign(cosine) * np.sign(2 * cosine**2 - 1)
    return sign_3 * (8 * cosine**4 - 8 * cosine**2 + 1) + 2 * np.sign(cosine) + sign_3 - 3


def shifted(cosine):
    """cos(θ + 0.5) in insightface, which goes on as a line beyond θ + 0.5 = π."""
    inside = cosine * math.cos(0.5) - np.sqrt(1 - cosine**2) * math.sin(0.5)
    line = cosine - 0.5 * math.sin(math.pi - 0.5)
    return np.where(cosine > math.cos(math.pi - 0.5), inside, line)


@pytest.mark.parametrize(
    ("name", "margin", "psi", "annealing"),
    [
        ("l-softmax", 2, double, 3.0),
        ("l-softmax", 4, quadruple, 3.0),
        ("sphereface", 4, quadruple, 5.0),
        ("am-softmax", 0.35, lambda cosine: cosine - 0.35, 0.0),
        ("arcface", 0.5, shifted, 0.0),
    ],
)
def test_as_the_authors_code_has_them(name, margin, psi, annealing):
    """The margin is in the label's logit; λ times all logits is added, and 1 + λ divides them."""
    torch.manual_seed(0)
    head = create_head(name, 16, 12, margin=margin).double()
    features, labels = torch.randn(64, 16, dtype=torch.float64), torch.arange(64) % 12
    features[:32] = 0.05 * features[:32] - head.weight.detach()[labels[:32]]  # θ near π
    x, w = features.numpy(), head.weight.detach().numpy()
    w_norm = np.linalg.norm(w, axis=1)
    cosine = x @ w.T / np.linalg.norm(x, axis=1, keepdims=True) / w_norm
    factor = {
        "l-softmax": np.linalg.norm(x, axis=1, keepdims=True) * w_norm,
        "sphereface": np.linalg.norm(x, axis=1, keepdims=True),
        "am-softmax": 30.0,
        "arcface": 64.0,
    }[name]
    own = np.eye(12, dtype=bool)[labels]
    expected = np.where(own, psi(cosine), cosine) * factor
    expected = (expected + annealing * cosine * factor) / (1 + annealing)
    if annealing:
        head.annealing.fill_(annealing)
    torch.testing.assert_close(head(features, labels), torch.from_numpy(expected))


@pytest.mark.parametrize("name", ["l-softmax", "sphereface"])
@pytest.mark.parametrize("margin", [1, 2, 3, 4])
def test_multiplied_angle_falls_without_jumps(name, margin):
    head = create_head(name, 2, 1, margin=margin).double()
    head.weight.data = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    angle = torch.linspace(0, math.pi, 10_001, dtype=torch.float64)
    features = torch.stack([angle.cos(), angle.sin()], 1)
    psi = head(features, torch.zeros(10_001, dtype=torch.long)).squeeze(1)
    assert (psi.diff() < 0).all()
    assert psi.diff().abs().max() < 2 * margin * math.pi / 10_000
    assert psi[-1].item() == pytest.approx(1 - 2 * margin)


@pytest.mark.parametrize("name", ["l-softmax", "sphereface", "arcface"])
def test_annealing_goes_from_cosine_to_margin(name):
    torch.manual_seed(0)
    head = create_head(name, 16, 12)
    features, labels = torch.randn(8, 16), torch.arange(8)
    margin, cosine = head(features, labels), head(features)
    for strength in (0.0, 1.0, 1000.0):
        head.annealing.fill_(strength)
        expected = (strength * cosine + margin) / (1 + strength)
        torch.testing.assert_close(head(features, labels), expected)
    assert "annealing" in head.state_dict()


def test_arcface_keeps_falling_beyond_pi():
    head = create_head("arcface", 2, 1, scale=1.0).double()
    head.weight.data = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    angle = torch.linspace(math.pi - 0.499, math.pi, 500, dtype=torch.float64)
    features = torch.stack([angle.cos(), angle.sin()], 1)
    target = head(features, torch.zeros(500, dtype=torch.long)).squeeze(1)
    assert (target.diff() < 0).all()


@pytest.mark.parametrize("angle", [0.0, math.pi])
def test_arcface_has_finite_gradients_where_the_sine_is_zero(angle):
    head = create_head("arcface", 2, 2)
    head.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    features = torch.tensor([[math.cos(angle), 0.0]], requires_grad=True)
    head.loss(features, torch.tensor([0])).backward()
    assert features.grad.isfinite().all()
    assert head.weight.grad.isfinite().all()

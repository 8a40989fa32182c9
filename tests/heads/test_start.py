"""Heads with a trainable scale start as their equations say, and learn from there."""

import math

import pytest
import torch
import torch.nn.functional as F

from wcdas import AMSoftmaxHead, CosineHead, TvMFHead, WCDASHead, WNDASHead

SIZES = [(16, 2), (16, 100_000), (64, 100), (1280, 200), (4096, 10)]
HEADS = {
    "cosine": CosineHead,
    "wcdas": WCDASHead,
    "wndas": WNDASHead,
    "t-vmf": TvMFHead,
    "am-softmax": lambda d, c: AMSoftmaxHead(d, c, scale="trainable"),
}
CIRCLE = torch.linspace(0, 2 * math.pi, 40_001, dtype=torch.float64)[:-1]


@pytest.mark.parametrize("head", [WCDASHead, WNDASHead])
@pytest.mark.parametrize("w_rho", [-6.0, -1.0, 0.0, 2.0, 6.0])
def test_shape_and_spread_of_a_density(head, w_rho):
    """Against autograd: the slope at a right angle, the rise to 0, and ∂f/∂w_ρ on the circle."""
    built = head(3, len(CIRCLE), init=w_rho, start="paper", scale=1.0).double()
    cosine = CIRCLE.cos().requires_grad_()
    f = built.similarity(cosine.unsqueeze(0), None)[0]
    slopes, by_w_rho = torch.autograd.grad(f.sum(), (cosine, built.w_rho))
    right = len(CIRCLE) // 4
    expected = (slopes[right].item(), (f[0] - f[right]).item())
    assert head.shape(w_rho) == pytest.approx(expected, rel=1e-9)
    assert head.spread(w_rho) == pytest.approx(by_w_rho.square().mean().sqrt().item(), rel=1e-6)


def at_right_angle_and_own(head):
    """g, the slope of the logits at a right angle, and how far they rise from there to 0."""
    cosine = torch.tensor([[0.0], [1.0]], dtype=torch.float64, requires_grad=True)
    z = head.scale * head.similarity(cosine.expand(2, head.num_classes), None)[:, 0]
    (slopes,) = torch.autograd.grad(z[0], cosine, retain_graph=True)
    return slopes[0].item(), z[1] - z[0]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("d", "classes"), SIZES)
def test_the_equations_of_the_start(name, d, classes):
    torch.manual_seed(0)
    head = HEADS[name](d, classes).double()
    g, rise = at_right_angle_and_own(head)
    needed = 2 * math.log(classes) * g / rise.item()
    assert g == pytest.approx(max(math.sqrt(d / 3), needed), rel=1e-5)
    assert head.scale.item() == pytest.approx(head.auto_scale)
    # Weights are drawn as those of nn.Linear, with entries in ± 1/√d and a length of 1/√3.
    assert head.weight.abs().max().item() <= math.sqrt(3 * g / 90 / d)
    assert head.weight.square().mean().item() == pytest.approx(g / 90 / d, rel=0.3)
    # A step of w_s moves the largest difference of logits by as much.
    (by_scale,) = torch.autograd.grad(rise, head.w_scale)
    assert by_scale.item() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("head", [WCDASHead, WNDASHead])
@pytest.mark.parametrize("options", [{}, {"init": 0.5}, {"scale": 250.0}, {"scale_init": 7.0}])
def test_a_step_of_w_rho_moves_a_logit_by_as_much(head, options):
    built = head(64, len(CIRCLE), **options).double()
    z = built.scale * built.similarity(CIRCLE.cos().unsqueeze(0), None)[0]
    (by_w_rho,) = torch.autograd.grad(z.sum(), built.w_rho)
    assert by_w_rho.square().mean().sqrt().item() == pytest.approx(1, rel=1e-4)
    first = options.get("init", -1.0)
    torch.testing.assert_close(built.concentration.logit(), torch.full_like(by_w_rho, first))


@pytest.mark.parametrize(("d", "classes"), [(64, 100), (1280, 200), (4096, 10)])
def test_the_first_logits_are_those_of_a_linear_layer(d, classes):
    """On features of unit variance they differ by a standard deviation of 1/√3."""
    torch.manual_seed(0)
    logits = WCDASHead(d, classes)(torch.randn(500, d))
    assert logits.var(dim=1).mean().sqrt().item() == pytest.approx(1 / math.sqrt(3), rel=0.1)


def test_the_paper_s_start():
    head = WCDASHead(64, 100, start="paper")
    assert head.w_scale.item() == 0
    assert head.w_rho.count_nonzero() == 0
    assert head.scale_units.tolist() == [1, 1]
    assert head.concentration_unit.item() == 1
    torch.manual_seed(1)
    weight = torch.nn.Linear(64, 100).weight
    torch.manual_seed(1)
    assert WCDASHead(64, 100, start="paper").weight.equal(weight)
    assert CosineHead(64, 100, start="paper").scale.item() == pytest.approx(math.log(2) + 1)


@pytest.mark.parametrize("options", [{}, {"start": "paper"}, {"init": 2.0, "scale_init": 80.0}])
@pytest.mark.parametrize("head", [WCDASHead, WNDASHead, CosineHead])
def test_weights_stored_without_units_predict_as_they_did(head, options):
    """Before there were units, s = softplus(w_s) + 1 and ρ = σ(w_ρ)."""
    if head is CosineHead:
        options = {key: value for key, value in options.items() if key != "init"}
    torch.manual_seed(0)
    built, before = head(8, 5, **options), head(8, 5, start="paper")
    with torch.no_grad():
        for parameter in before.parameters():
            parameter.normal_()
    stored = {name: value for name, value in before.state_dict().items() if "unit" not in name}
    built.load_state_dict(stored)
    features = torch.randn(4, 8)
    assert built(features).equal(before(features))
    assert stored.keys() <= {"weight", "w_scale", "w_rho"}
    again = head(8, 5)
    again.load_state_dict(built.state_dict())
    assert again(features).equal(before(features))


def accuracy_after(head, optimizer, features, labels, steps=200):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(labels), (64,), generator=generator)
        optimizer.zero_grad()
        head.loss(features[rows], labels[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return (head(features).argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize(("d", "classes"), [(16, 2), (64, 30), (512, 30), (4096, 10)])
@pytest.mark.parametrize(
    ("optimizer", "lr"),
    [("SGD", 0.001), ("SGD", 0.01), ("SGD", 0.1), ("AdamW", 0.0003), ("AdamW", 0.01)],
)
def test_learns_at_any_width_and_rate(d, classes, optimizer, lr):
    """Classes around directions of their own, at distances that no head could mistake."""
    torch.manual_seed(0)
    centres = F.normalize(torch.randn(classes, d)) * math.sqrt(d)
    labels = torch.arange(600) % classes
    features = centres[labels] + 0.3 * torch.randn(600, d)
    head = WCDASHead(d, classes)
    options = {"momentum": 0.9} if optimizer == "SGD" else {}
    trained = getattr(torch.optim, optimizer)(head.parameters(), lr=lr, **options)
    assert accuracy_after(head, trained, features, labels) > 0.9

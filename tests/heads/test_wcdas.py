"""The wrapped Cauchy head: its formula, its exactness, its extremes."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from wcdas import MixedLabels, WCDASHead, create_head
from wcdas.circular import WrappedCauchy
from wcdas.heads.functional import chunked, plain

KERNELS = [plain, chunked]


def near_prototypes(rho: float, angle: float, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """96 samples at one angle to their own prototype among 257, with a target logit of 10."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(257, 64, generator=generator)
    labels = torch.randint(257, (96,), generator=generator)
    own = F.normalize(weight[labels].double(), dim=1)
    away = torch.randn(96, 64, generator=generator, dtype=torch.float64)
    away = F.normalize(away - (away * own).sum(1, keepdim=True) * own, dim=1)
    length = 1 + 3 * torch.rand(96, 1, generator=generator, dtype=torch.float64)
    features = (length * (own * math.cos(angle) + away * math.sin(angle))).float()
    w_rho = torch.full((257,), math.log(rho / (1 - rho)))
    scale = torch.tensor(10 / WrappedCauchy(rho).prob(torch.tensor(angle)).item())
    inputs = (t.to(dtype).requires_grad_() for t in (features, weight, w_rho, scale))
    return *inputs, labels


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rho", [0.05, 0.5, 0.88, 0.982, 0.9975])
@pytest.mark.parametrize("angle", [0.003, 0.03, 0.3, 1.0])
def test_float32_gradients_are_exact(kernel, rho, angle):
    gradients = {}
    for dtype in (torch.float32, torch.float64):
        *inputs, labels = near_prototypes(rho, angle, dtype)
        gradients[dtype] = torch.autograd.grad(kernel.wcdas_losses(*inputs, labels).mean(), inputs)
    for approximate, exact in zip(*gradients.values(), strict=True):
        assert (approximate.double() - exact).norm() <= 1e-4 * exact.norm()


def test_textbook_form_would_not_be_exact():
    """The bound above is one that softmax cross-entropy on plain logits does not meet."""
    errors = []
    for form in ("textbook", "apart"):
        values = []
        for dtype in (torch.float32, torch.float64):
            x, w, w_rho, s, y = near_prototypes(0.9975, 0.003, dtype)
            if form == "apart":
                loss = plain.wcdas_losses(x, w, w_rho, s, y).mean()
            else:
                c, rho = F.normalize(x) @ F.normalize(w).mT, w_rho.sigmoid()
                f = (1 - rho**2) / (2 * math.pi * (1 + rho**2 - 2 * rho * c))
                loss = F.cross_entropy(s * f, y)
            values.append(torch.autograd.grad(loss, x)[0].double())
        errors.append((values[0] - values[1]).norm() / values[1].norm())
    assert errors[0] > 1e-2 > 1e-4 > errors[1]


def test_logits_are_the_density():
    head = WCDASHead(3, 7, init="he", scale=20.0).double()
    features = torch.randn(5, 3, dtype=torch.float64)
    angle = (F.normalize(features) @ F.normalize(head.weight).mT).acos()
    expected = 20 * WrappedCauchy(head.concentration).prob(angle)
    torch.testing.assert_close(head(features), expected, rtol=1e-12, atol=0)


def test_small_concentration_gives_constant_logits():
    head = WCDASHead(3, 7, init=-30.0, scale=20.0)
    assert torch.allclose(head(torch.randn(5, 3)), torch.tensor(20 / (2 * math.pi)), rtol=1e-6)


def test_scale():
    assert WCDASHead(3, 7, start="paper").scale.item() == pytest.approx(math.log(2) + 1)
    for start in ("auto", "paper"):
        assert WCDASHead(3, 7, scale_init=10.0, start=start).scale.item() == pytest.approx(10)
    assert WCDASHead(3, 7, scale=250.0).scale.item() == 250
    assert "w_scale" not in dict(WCDASHead(3, 7, scale=250.0).named_parameters())


def test_concentration_per_class_or_single():
    assert WCDASHead(3, 7).w_rho.shape == (7,)
    single = WCDASHead(3, 7, init=1.0, per_class=False)
    assert single.w_rho.shape == (1,)
    torch.testing.assert_close(single.concentration, torch.full((7,), 1.0).sigmoid())
    single.loss(torch.randn(4, 3), torch.arange(4)).backward()
    assert single.w_rho.grad.abs() > 0


@pytest.mark.parametrize(
    ("init", "std"), [("he", (2 / 10_000) ** 0.5), ("xavier", (2 / 10_001) ** 0.5)]
)
def test_random_initialisation_takes_w_rho_as_a_row(init, std):
    torch.manual_seed(0)
    w_rho = WCDASHead(3, 10_000, init=init).concentration.logit()
    assert w_rho.std().item() == pytest.approx(std, rel=0.05)
    assert abs(w_rho.mean().item()) < 4 * std / 100


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("w_rho", [-25.0, -10.0, 0.0, 10.0, 25.0])
@pytest.mark.parametrize("scale", [1.0, 250.0])
@pytest.mark.parametrize("angle", [0.0, 1e-6, 1e-2, 1.0, math.pi])
def test_finite_at_the_extremes(kernel, w_rho, scale, angle):
    weight = torch.eye(3, 8)
    direction = math.cos(angle) * weight[0] + math.sin(angle) * weight[1]
    inputs = [direction.repeat(4, 1), weight, torch.full((3,), w_rho), torch.tensor(scale)]
    inputs = [t.clone().requires_grad_() for t in inputs]
    losses = kernel.wcdas_losses(*inputs, torch.tensor([0, 1, 2, 0]))
    assert losses.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(losses.mean(), inputs))


@pytest.mark.parametrize("w_rho", [-5.0, 0.0, 5.0])
def test_half_precision_features_give_finite_gradients(w_rho):
    head = WCDASHead(16, 10, init=w_rho, scale=250.0)
    labels = torch.arange(10)
    features = head.weight.detach().half().requires_grad_()
    head.loss(features, labels).backward()
    assert features.grad.dtype == torch.float16
    assert all(t.grad.isfinite().all() for t in (features, *head.parameters()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_zero_vectors(kernel):
    """A zero feature, and a zero prototype, are at a right angle to everything, without a slope."""
    features, weight = torch.randn(3, 4), torch.randn(5, 4)
    features[0], weight[2] = 0, 0
    w_rho = torch.randn(5)
    inputs = [t.requires_grad_() for t in (features, weight, w_rho, torch.tensor(9.0))]
    losses = kernel.wcdas_losses(*inputs, torch.tensor([1, 2, 3]))
    rho = w_rho.sigmoid()
    upright = 9 * (1 - rho**2) / (2 * math.pi * (1 + rho**2))
    torch.testing.assert_close(losses[0], upright.logsumexp(0) - upright[1])
    to_features, to_weight, *_ = torch.autograd.grad(losses.sum(), inputs)
    assert (to_features[0] == 0).all()
    assert (to_weight[2] == 0).all()
    assert (to_features[1:] != 0).all()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("w_rho", [2.5, 8.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_identical_prototypes(kernel, w_rho, seed):
    """Six times the same class on top of the feature; at ρ = 0.9997 one unit in the last place of
    the cosine moves a logit by half, so that only its being a number is asked for."""
    torch.manual_seed(seed)
    weight = torch.randn(1, 4).expand(6, 4).clone()
    inputs = [weight[:3].clone(), weight, torch.full((6,), w_rho), torch.tensor(50.0)]
    inputs = [t.requires_grad_() for t in inputs]
    losses = kernel.wcdas_losses(*inputs, torch.arange(3))
    if w_rho < 8:
        torch.testing.assert_close(losses, torch.full((3,), math.log(6)), rtol=2e-2, atol=0)
    assert all(g.isfinite().all() for g in torch.autograd.grad(losses.sum(), inputs))


def test_one_class_costs_nothing():
    head = WCDASHead(4, 1)
    features = torch.randn(3, 4, requires_grad=True)
    loss = head.loss(features, torch.zeros(3, dtype=torch.long), label_smoothing=0.1)
    loss.backward()
    assert loss == 0
    assert (features.grad == 0).all()


def test_a_hundred_thousand_classes():
    head = WCDASHead(16, 100_000, scale=30.0)
    features = torch.randn(8, 16, requires_grad=True)
    loss = head.loss(features, torch.randint(100_000, (8,)))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(100_000), rel=0.2)
    assert all(t.grad.isfinite().all() for t in (features, *head.parameters()))


def test_bfloat16_input_under_autocast():
    head = WCDASHead(64, 257, init=6.0)
    features, _, _, _, labels = near_prototypes(0.9975, 0.003, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = head.loss(features.detach().bfloat16(), labels)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in head.parameters())


def test_the_kernel_changes_at_2000_classes_and_the_loss_does_not():
    torch.manual_seed(0)
    features, labels = torch.randn(5, 8, dtype=torch.float64), torch.arange(5)
    for classes, twice in ((1_999, True), (2_000, False)):
        head = WCDASHead(8, classes, init="he").double()
        x = features.clone().requires_grad_()
        loss = head.loss(x, labels, label_smoothing=0.1)
        expected = F.cross_entropy(head(x), labels, label_smoothing=0.1)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        if twice:
            torch.autograd.grad(first.square().sum(), x)
        else:
            with pytest.raises(NotImplementedError, match="first derivatives only from 2,000"):
                torch.autograd.grad(first.square().sum(), x)


@pytest.mark.parametrize(("engine", "classes"), [("plain", 2_000), ("chunked", 5)])
def test_an_engine_is_taken_whatever_the_number_of_classes(engine, classes):
    head = WCDASHead(8, classes, engine=engine)
    x = torch.randn(5, 8, requires_grad=True)
    loss = head.loss(x, torch.arange(5))
    torch.testing.assert_close(loss, F.cross_entropy(head(x), torch.arange(5)))
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    if engine == "plain":
        torch.autograd.grad(first.square().sum(), x)
    else:
        with pytest.raises(NotImplementedError):
            torch.autograd.grad(first.square().sum(), x)


@pytest.mark.parametrize("classes", [40, 2_100])
def test_compile_func_and_export_on_both_kernels(classes):
    head = WCDASHead(8, classes, init="he").double()
    features, labels = torch.randn(5, 8, dtype=torch.float64), torch.arange(5)
    expected = head.loss(features, labels)
    expected.backward()
    wanted = {k: p.grad.clone() for k, p in head.named_parameters()}

    torch._dynamo.reset()
    head.zero_grad()
    torch.compile(head.loss, fullgraph=True, backend="aot_eager")(features, labels).backward()
    for key, parameter in head.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[key])

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, features: Tensor, labels: Tensor) -> Tensor:
            return self.head.loss(features, labels)

    module = Loss()
    parameters = {k: p.detach() for k, p in module.named_parameters()}

    def loss_of(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return torch.func.functional_call(module, parameters, (x[None], y[None]))

    each = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))(parameters, features, labels)
    for key, value in each.items():
        torch.testing.assert_close(value.mean(0), wanted[key.removeprefix("head.")])

    program = torch.export.export(module, (features, labels))
    torch.testing.assert_close(program.module()(features, labels), expected)


@pytest.mark.slow
def test_inductor_compiles_the_head():
    head = create_head("wcdas", 8, 30)
    features, labels = torch.randn(5, 8), torch.arange(5)
    torch._dynamo.reset()
    compiled = torch.compile(head.loss, fullgraph=True)(features, labels)
    torch.testing.assert_close(compiled, head.loss(features, labels))


def test_training_separates_and_sharpens():
    """Ten steps on separable points lower the loss and move ρ, s and the prototypes."""
    torch.manual_seed(0)
    head = WCDASHead(8, 4, start="paper")
    features = torch.eye(4, 8).repeat(8, 1) + 0.1 * torch.randn(32, 8)
    labels = torch.arange(4).repeat(8)
    before = head.loss(features, labels)
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        head.loss(features, labels).backward()
        optimizer.step()
    assert head.loss(features, labels) < 0.2 * before  # 0.011 to 0.017 over ten seeds
    assert (head.concentration > 0.5).all()  # from 0.75
    assert (head(features).argmax(1) == labels).all()


def test_mixup_equals_probabilities_as_target():
    head = WCDASHead(8, 30).double()
    features, first = torch.randn(5, 8, dtype=torch.float64), torch.arange(5)
    second = first + 1
    dense = 0.3 * F.one_hot(first, 30) + 0.7 * F.one_hot(second, 30)
    mixed = head.loss(features, MixedLabels(first, second, 0.3))
    torch.testing.assert_close(mixed, head.loss(features, dense.double()))

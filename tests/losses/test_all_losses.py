"""What every loss on logits promises, and the factory that builds them."""

import doctest
import importlib
import pkgutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import wcdas.losses
from wcdas.losses import LOSSES, ClassificationLoss, create_loss, list_losses
from wcdas.targets import MixedLabels

VARIANTS = [
    ("cross-entropy", {}),
    ("focal", {}),
    ("focal", {"gamma": 0.5}),
    ("focal", {"activation": "sigmoid", "alpha": 0.25}),
    ("class-balanced", {"beta": 0.99}),
    ("class-balanced", {"beta": 0.99, "gamma": 1.5}),
    ("ldam", {"scale": 2.0}),
    ("ldam", {"scale": 2.0, "beta": 0.99}),
    ("logit-adjustment", {"tau": 0.7}),
    ("balanced-softmax", {}),
    ("equalization", {"threshold": 0.1, "gamma": 0.5}),
]
SMOOTHED = [variant for variant in VARIANTS if variant[0] != "equalization"]


def build(variant, counts, **options):
    name, own_options = variant
    return create_loss(name, counts, **own_options, **options)


def seeded(loss, *inputs):
    torch.manual_seed(3)
    return loss(*inputs)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_one_hot_targets_equal_labels(variant, class_counts, logits, labels):
    loss = build(variant, class_counts, reduction="none")
    one_hot = F.one_hot(labels, len(class_counts)).double()
    torch.testing.assert_close(seeded(loss, logits, one_hot), seeded(loss, logits, labels))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_reductions_agree(variant, class_counts, logits, labels):
    losses = seeded(build(variant, class_counts, reduction="none"), logits, labels)
    assert losses.shape == (8,)
    total = seeded(build(variant, class_counts, reduction="sum"), logits, labels)
    torch.testing.assert_close(total, losses.sum())
    torch.testing.assert_close(seeded(build(variant, class_counts), logits, labels), total / 8)


@pytest.mark.parametrize("variant", SMOOTHED, ids=str)
def test_label_smoothing_is_its_soft_target(variant, class_counts, logits, labels):
    smoothed = build(variant, class_counts, label_smoothing=0.2)(logits, labels)
    targets = 0.8 * torch.eye(5, dtype=torch.float64)[labels] + 0.2 / 5
    torch.testing.assert_close(smoothed, build(variant, class_counts)(logits, targets))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients(variant, soft, class_counts, logits, labels, soft_targets):
    loss = build(variant, class_counts)
    targets = soft_targets if soft else labels
    assert torch.autograd.gradcheck(
        lambda z: seeded(loss, z, targets), logits.clone().requires_grad_()
    )


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_classes_have_no_order(variant, class_counts, logits, labels, soft_targets):
    order = torch.tensor([3, 0, 4, 1, 2])
    loss = build(variant, class_counts).eval()
    permuted = build(variant, torch.tensor(class_counts)[order]).eval()
    torch.testing.assert_close(
        permuted(logits[:, order], order.argsort()[labels]), loss(logits, labels)
    )
    torch.testing.assert_close(
        permuted(logits[:, order], soft_targets[:, order]), loss(logits, soft_targets)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_half_precision_is_computed_in_float32(variant, dtype, class_counts, logits, labels):
    loss = build(variant, class_counts)
    half = logits.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = seeded(loss, half, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, seeded(loss, half.float(), labels), rtol=0, atol=0)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_float32_follows_float64(variant, class_counts, logits, labels):
    loss = build(variant, class_counts).eval()
    single = logits.float()
    value, reference = loss(single, labels), loss(single.double(), labels)
    assert (value.dtype, reference.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(value.double(), reference, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**16),
    magnitude=st.sampled_from([1e-3, 1.0, 50.0, 1e4]),
    label=st.integers(0, 4),
)
def test_finite_and_not_negative_at_any_magnitude(variant, seed, magnitude, label):
    generator = torch.Generator().manual_seed(seed)
    z = (magnitude * torch.randn(2, 5, generator=generator)).requires_grad_()
    value = build(variant, [500, 120, 40, 9, 2])(z, torch.tensor([label, 4 - label]))
    value.backward()
    assert value >= 0
    assert value.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@settings(max_examples=20)
@given(count=st.integers(1, 10**6), seed=st.integers(0, 2**16))
@pytest.mark.parametrize(
    "variant",
    [
        ("class-balanced", {}),
        ("logit-adjustment", {"tau": 2.5}),
        ("balanced-softmax", {}),
        ("equalization", {"threshold": 0.2, "gamma": 1.0}),
        ("focal", {"gamma": 0.0}),
        ("cross-entropy", {}),
    ],
    ids=str,
)
def test_balanced_counts_give_cross_entropy(variant, count, seed):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (4,), generator=generator)
    torch.testing.assert_close(build(variant, [count] * 5)(z, y), F.cross_entropy(z, y))


@pytest.mark.parametrize(
    "variant", [("balanced-softmax", {}), ("ldam", {"beta": 0.99})], ids=lambda v: v[0]
)
def test_compiles_without_a_break(variant, class_counts, logits, labels):
    loss = build(variant, class_counts)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    z = logits.clone().requires_grad_()
    value = compiled(z, labels)
    torch.testing.assert_close(value, loss(logits, labels))
    (gradient,) = torch.autograd.grad(value, z)
    torch.testing.assert_close(gradient, torch.func.grad(loss)(logits, labels))


@pytest.mark.parametrize("variant", SMOOTHED, ids=str)
def test_vmap_over_samples(variant, class_counts, logits, labels):
    loss = build(variant, class_counts)

    def one(z, y):
        return loss(z[None], y[None])

    values = torch.func.vmap(one)(logits, labels)
    torch.testing.assert_close(values[3], loss(logits[3:4], labels[3:4]))
    gradients = torch.func.vmap(torch.func.grad(one))(logits, labels)
    torch.testing.assert_close(
        gradients[5], torch.func.grad(loss)(logits[5:6], labels[5:6]).squeeze(0)
    )


@pytest.mark.parametrize("name", [n for n in list_losses() if n not in ("center", "equilibrium")])
def test_a_checkpoint_does_not_overrule_the_constructor(name, class_counts):
    """Counts, margins and weights are configuration; loading another's state keeps one's own."""
    assert create_loss(name, class_counts).state_dict() == {}


def test_centers_travel(class_counts, logits, labels):
    trained = create_loss("center", class_counts, in_features=logits.shape[1])
    trained(logits, labels)
    other = create_loss("center", class_counts, in_features=logits.shape[1])
    other.load_state_dict(trained.state_dict())
    assert torch.equal(other.centers, trained.centers)
    assert other.centers.abs().sum() > 0


def test_narrow_integer_labels(class_counts, logits, labels):
    loss = create_loss("ldam", class_counts)
    torch.testing.assert_close(loss(logits, labels.to(torch.uint8)), loss(logits, labels))


@pytest.mark.parametrize("name", list_losses())
def test_factory_builds_every_loss(name, class_counts):
    options = {"in_features": 7} if name == "center" else {}
    assert type(create_loss(name, class_counts, **options)) is LOSSES[name]


def test_center_takes_num_classes_from_either(class_counts):
    assert create_loss("center", class_counts, in_features=7).centers.shape == (5, 7)
    assert create_loss("center", num_classes=3, in_features=7).centers.shape == (3, 7)


def test_factory_passes_options(class_counts):
    assert create_loss("focal", class_counts, gamma=1.0).gamma == 1.0


def test_unknown_names_are_answered_with_the_nearest(class_counts):
    with pytest.raises(ValueError, match=r"unknown loss 'balanced_sofmax'.*'balanced-softmax'"):
        create_loss("balanced_sofmax", class_counts)
    with pytest.raises(ValueError, match="option of loss 'focal' 'gama'; did you mean 'gamma'"):
        create_loss("focal", gama=1.0)
    with pytest.raises(ValueError, match="unknown option of loss 'equalization'"):
        create_loss("equalization", class_counts, label_smoothing=0.1)


@pytest.mark.parametrize(
    "name", ["class-balanced", "ldam", "logit-adjustment", "balanced-softmax", "equalization"]
)
def test_bad_counts(name, logits, labels):
    with pytest.raises(ValueError, match="needs class_counts"):
        create_loss(name)
    with pytest.raises(ValueError, match="class 1 has none; remove the class or add an image"):
        create_loss(name, [3, 0, 1])
    with pytest.raises(ValueError, match="logits have 5 classes, but class_counts have 3"):
        create_loss(name, [3, 2, 1])(logits, labels)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_bad_inputs(variant, class_counts, logits, labels):
    loss = build(variant, class_counts)
    with pytest.raises(ValueError, match="label 5 is out of range; expected 0 to 4"):
        loss(logits, labels + 1)
    with pytest.raises(ValueError, match="label -1 is out of range"):
        loss(logits, labels - 1)
    with pytest.raises(ValueError, match=r"targets are torch.float32 of shape \(8,\)"):
        loss(logits, labels.float())
    with pytest.raises(ValueError, match=r"labels have shape \(7,\); expected \(8,\)"):
        loss(logits, labels[:7])
    with pytest.raises(TypeError, match=r"logits are torch.int64"):
        loss(logits.long(), labels)
    with pytest.raises(ValueError, match=r"logits have shape \(5,\)"):
        loss(logits[0], labels)
    logits[6, 2] = float("nan")
    with pytest.raises(ValueError, match="logits contain NaN, first in row 6"):
        loss(logits, labels)


@pytest.mark.parametrize("variant", SMOOTHED, ids=str)
def test_bad_options(variant, class_counts):
    with pytest.raises(ValueError, match=r"unknown reduction 'avg'.*mean"):
        build(variant, class_counts, reduction="avg")
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"label_smoothing is .* at least 0 and below 1"):
            build(variant, class_counts, label_smoothing=wrong)


def test_autocast_is_off_inside(logits, labels):
    class MatmulLoss(ClassificationLoss):
        def losses(self, logits, targets):
            return (logits @ logits.T).diagonal()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = MatmulLoss(reduction="none")(logits.float(), labels)
    torch.testing.assert_close(value, logits.float().square().sum(dim=1))


def test_a_loss_must_define_its_hook(logits, labels):
    with pytest.raises(NotImplementedError, match=r"ClassificationLoss does not define losses"):
        ClassificationLoss()(logits, labels)


def test_examples_run():
    modules = [wcdas.losses] + [
        importlib.import_module(f"wcdas.losses.{module.name}")
        for module in pkgutil.iter_modules(wcdas.losses.__path__)
    ]
    results = [doctest.testmod(module) for module in modules]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) > 20


@pytest.mark.parametrize("name", [n for n in list_losses() if n != "center"])
def test_mixed_labels_mix_the_losses(name: str) -> None:
    loss = create_loss(name, class_counts=[50, 20, 5], reduction="none").eval()
    logits = torch.randn(4, 3)
    first, second = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 1, 0, 1])
    lam = torch.tensor([0.0, 0.3, 0.5, 1.0])
    mixed = loss(logits, MixedLabels(first, second, lam))
    torch.testing.assert_close(mixed, lam * loss(logits, first) + (1 - lam) * loss(logits, second))


def test_a_missing_option_is_named() -> None:
    with pytest.raises(ValueError, match="loss 'center' needs in_features; give in_features="):
        create_loss("center", class_counts=[3, 2])

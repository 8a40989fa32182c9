"""What holds for every head."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacrev, vmap

import wcdas
from wcdas import MixedLabels, create_head, list_heads
from wcdas.heads import Head

MARGIN = ["l-softmax", "am-softmax", "arcface", "sphereface"]
COMPILED_QUICKLY = ("linear", "cosine", "wcdas")  # the others are slow tests
ANGLE_ALONE = ["cosine", "wcdas", "wndas", "t-vmf", "am-softmax", "arcface"]
VARIANTS = [
    *((name, {}) for name in list_heads()),
    ("wcdas", {"per_class": False, "scale": 250.0}),
    ("wndas", {"per_class": False, "scale": 10.0}),
    ("t-vmf", {"trainable": True}),
    ("cosine", {"scale": 30.0}),
    ("l-softmax", {"margin": 3}),
    ("tau-norm", {"tau": 0.5, "bias": True}),
    ("gaussian-affinity", {"prototypes": 3, "feature_scale": 0.5}),
]


def head_of(name: str, classes: int = 5, **options: object) -> Head:
    torch.manual_seed(0)
    head = create_head(name, 4, classes, **options).double()
    for parameter in head.parameters():
        if parameter.requires_grad and parameter.dim() == 1:
            torch.nn.init.normal_(parameter)  # no two classes alike
    return head


def batch(size: int = 6, classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(size, 4, generator=generator, dtype=torch.float64)
    return features, torch.arange(size) % classes


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@pytest.mark.parametrize("labelled", [False, True])
def test_first_and_second_derivatives(name, options, labelled):
    head = head_of(name, **options)
    if hasattr(head, "annealing"):
        head.annealing.fill_(1.5)
    features, labels = batch(size=3)
    parameters = {k: v for k, v in head.named_parameters() if v.requires_grad}

    def logits(x, *values):
        named = dict(zip(parameters, values, strict=True))
        return functional_call(head, named, (x, labels if labelled else None))

    inputs = (
        features.requires_grad_(),
        *(p.detach().requires_grad_() for p in parameters.values()),
    )
    assert gradcheck(logits, inputs)
    assert gradgradcheck(logits, inputs)


@pytest.mark.parametrize("name", list_heads())
def test_loss_is_cross_entropy_of_the_logits(name):
    head = head_of(name)
    features, labels = batch()
    log_prior = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05], dtype=torch.float64).log()
    weight = torch.rand(6, dtype=torch.float64)
    for smoothing in (0.0, 0.1):
        logits = head(features, labels) + log_prior
        expected = torch.nn.functional.cross_entropy(
            logits, labels, label_smoothing=smoothing, reduction="none"
        )
        options = {"label_smoothing": smoothing, "log_prior": log_prior}
        each = head.loss(features, labels, reduction="none", **options)
        torch.testing.assert_close(each, expected)
        weighted = head.loss(features, labels, sample_weight=weight, **options)
        torch.testing.assert_close(weighted, (weight * expected).mean())
        total = head.loss(features, labels, sample_weight=weight, reduction="sum", **options)
        torch.testing.assert_close(total, (weight * expected).sum())


@pytest.mark.parametrize("name", list_heads())
def test_mixed_labels_mix_the_losses(name):
    head = head_of(name)
    features, labels = batch()
    second, lam = labels.roll(1), torch.linspace(0, 1, 6, dtype=torch.float64)
    one, two = (head.loss(features, y, reduction="none") for y in (labels, second))
    mixed = head.loss(features, MixedLabels(labels, second, lam), reduction="none")
    torch.testing.assert_close(mixed, lam * one + (1 - lam) * two)
    number = head.loss(features, MixedLabels(labels, second, 0.3))
    torch.testing.assert_close(number, 0.3 * one.mean() + 0.7 * two.mean())


@pytest.mark.parametrize("name", list_heads())
def test_class_probabilities_as_target(name):
    head = head_of(name)
    features, _ = batch()
    target = torch.rand(6, 5, dtype=torch.float64).softmax(1)
    expected = -(target * head(features).log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(head.loss(features, target), expected)


@pytest.mark.parametrize("name", list_heads())
def test_margins_lower_the_target_logit_alone(name):
    head = head_of(name)
    features, labels = batch()
    plain, with_labels = head(features), head(features, labels)
    target = torch.nn.functional.one_hot(labels, 5).bool()
    torch.testing.assert_close(plain[~target], with_labels[~target])
    if name in MARGIN:
        assert (with_labels[target] < plain[target]).all()
    else:
        assert torch.equal(plain, with_labels)


@pytest.mark.parametrize("name", ANGLE_ALONE)
@settings(max_examples=20)
@given(exponent=st.floats(-10, 10), to_weight=st.booleans())
def test_scaling_features_or_weights_changes_nothing(name, exponent, to_weight):
    head = head_of(name)
    features, labels = batch()
    expected = head(features, labels)
    if to_weight:
        head.weight.data *= 10**exponent
    else:
        features = features * 10**exponent
    torch.testing.assert_close(head(features, labels), expected)


@pytest.mark.parametrize("name", list_heads())
@settings(max_examples=10)
@given(order=st.permutations(range(5)))
def test_permuting_classes_permutes_logits(name, order):
    head = head_of(name)
    features, labels = batch()
    expected = head(features, labels)[:, order]
    for tensor in (*head.parameters(), *head.buffers()):
        if tensor.shape[:1] == (5,):
            tensor.data = tensor.data[order]
    moved = torch.tensor(order).argsort()[labels]
    torch.testing.assert_close(head(features, moved), expected)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@pytest.mark.parametrize("classes", [slice(0, 1), slice(1, 4), slice(4, 5)])
def test_a_part_of_the_classes(name, options, classes):
    head, features = head_of(name, **options), batch()[0]
    assert head.separable
    part = head.part(classes)
    assert part.num_classes == len(range(5)[classes])
    torch.testing.assert_close(part(features), head(features)[:, classes])
    torch.testing.assert_close(part.cosine(features), head.cosine(features)[:, classes])
    # It is a view: what changes in the head changes in it.
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(1.5)
    torch.testing.assert_close(part(features), head(features)[:, classes])
    assert head.num_classes == 5


@pytest.mark.parametrize("name", ["cosine", "wcdas", "wndas", "t-vmf", "sphereface"])
@pytest.mark.parametrize("labelled", [False, True])
def test_logits_rise_with_the_cosine(name, labelled):
    head = create_head(name, 2, 1).double()
    head.weight.data = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    angle = torch.linspace(torch.pi, 0, 200, dtype=torch.float64)
    features = torch.stack([angle.cos(), angle.sin()], 1)
    labels = torch.zeros(200, dtype=torch.long) if labelled else None
    assert (head(features, labels).squeeze(1).diff() > 0).all()


@pytest.mark.parametrize("name", list_heads())
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_computes_in_float32_under_autocast(name, dtype):
    head = create_head(name, 4, 5)
    features, labels = batch()
    features = features.to(dtype)
    expected, expected_loss = head(features.float(), labels), head.loss(features.float(), labels)
    with torch.autocast("cpu", torch.bfloat16):
        logits, loss = head(features, labels), head.loss(features, labels)
    assert logits.dtype == loss.dtype == torch.float32
    assert torch.equal(logits, expected)
    assert torch.equal(loss, expected_loss)


@pytest.mark.parametrize("name", list_heads())
def test_half_precision_parameters_are_raised_too(name):
    head = create_head(name, 4, 5).bfloat16()
    features, labels = batch()
    loss = head.loss(features.bfloat16(), labels)
    loss.backward()
    assert loss.dtype == torch.float32
    gradients = [p.grad for p in head.parameters() if p.requires_grad]
    assert all(g is not None and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", list_heads())
def test_zero_features_and_empty_batches(name):
    head = head_of(name)
    features, labels = batch()
    features[0] = 0
    features.requires_grad_()
    head.loss(features, labels).backward()
    assert features.grad.isfinite().all()
    if name in ANGLE_ALONE:
        assert (features.grad[0] == 0).all()
    empty = head.loss(features[:0], labels[:0], reduction="none")
    assert empty.shape == (0,)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in COMPILED_QUICKLY)) for n in list_heads()],
)
def test_compiles_as_one_graph(name):
    head = create_head(name, 4, 5)
    features, labels = batch()
    features = features.float().requires_grad_()
    expected = head.loss(features, labels)
    wanted = torch.autograd.grad(expected, features)[0]
    torch._dynamo.reset()
    compiled = torch.compile(head.loss, fullgraph=True, backend="aot_eager")
    loss = compiled(features, labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, features)[0], wanted)


@pytest.mark.parametrize("name", list_heads())
def test_function_transforms(name):
    head = head_of(name)
    features, labels = batch()
    parameters = {k: v.detach() for k, v in head.named_parameters()}

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self, x, y):
            return self.head.loss(x, y)

    module = Loss()

    def loss(parameters, x, y):
        named = {f"head.{k}": v for k, v in parameters.items()}
        return functional_call(module, named, (x.unsqueeze(0), y.unsqueeze(0)))

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, features, labels)
    together = grad(
        lambda p: functional_call(
            module, {f"head.{k}": v for k, v in p.items()}, (features, labels)
        )
    )(parameters)
    for key, expected in together.items():
        torch.testing.assert_close(each[key].mean(0), expected)
    assert jacrev(head)(features).shape == (6, 5, 6, 4)


@pytest.mark.parametrize("name", list_heads())
def test_exports(name):
    head = create_head(name, 4, 5).eval()
    features, _ = batch()
    features = features.float()
    rows = torch.export.Dim("batch", min=2)
    program = torch.export.export(head, (features,), dynamic_shapes={"features": {0: rows}})
    larger = features.repeat(3, 1)
    torch.testing.assert_close(program.module()(larger), head(larger))


@pytest.mark.parametrize("name", list_heads())
def test_state_round_trip(name):
    head, other = head_of(name), create_head(name, 4, 5).double()
    features, labels = batch()
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(features, labels), head(features, labels))
    assert "in_features=4, num_classes=5" in repr(head)


@pytest.mark.parametrize("name", list_heads())
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x, y: (x.index_fill(1, torch.tensor([2]), torch.nan), y),
            "NaN or infinity, first in row 0",
        ),
        (lambda x, y: (x, y + 1), "label 5 is out of range; expected 0 to 4"),
        (lambda x, y: (x, y - 1), "label -1 is out of range; expected 0 to 4"),
        (lambda x, y: (x[:, :3], y), r"shape \(6, 3\); expected \(batch, 4\)"),
        (lambda x, y: (x[0], y), r"shape \(4,\); expected \(batch, 4\)"),
        (lambda x, y: (x, y[:3]), r"shape \(3,\); expected \(6,\)"),
    ],
)
def test_bad_input_is_refused(name, change, message):
    head = create_head(name, 4, 5)
    features, labels = batch()
    features, labels = change(features.float(), labels)
    with pytest.raises(ValueError, match=message) as forward:
        head(features, labels)
    with pytest.raises(ValueError, match=message):
        head.loss(features, labels)
    assert "\n" not in str(forward.value)


def test_bad_types_are_refused():
    head = wcdas.CosineHead(4, 5)
    features, labels = batch()
    with pytest.raises(TypeError, match=r"torch\.int64; expected a floating-point"):
        head(labels.unsqueeze(1))
    with pytest.raises(TypeError, match=r"labels are torch\.float64"):
        head(features, labels.double())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"label_smoothing": 1.0},
            "label_smoothing is 1.0; expected a number of at least 0 and below 1",
        ),
        ({"log_prior": torch.zeros(4)}, r"log_prior has shape \(4,\); expected \(5,\)"),
        ({"sample_weight": torch.ones(5)}, r"sample_weight has shape \(5,\); expected \(6,\)"),
        ({"reduction": "avg"}, "unknown reduction 'avg'; known: mean, none, sum"),
    ],
)
def test_bad_loss_options_are_refused(options, message):
    features, labels = batch()
    with pytest.raises(ValueError, match=message):
        wcdas.WCDASHead(4, 5).loss(features, labels, **options)


def test_probabilities_of_the_wrong_shape_are_refused():
    features, _ = batch()
    with pytest.raises(ValueError, match=r"expected integer labels \(6,\) or class probabilities"):
        wcdas.WCDASHead(4, 5).loss(features, torch.ones(6, 4))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("wcdas", {"init": "hee"}, "init is 'hee'; expected a finite number, 'he' or 'xavier'"),
        ("wcdas", {"init": [0.0]}, r"init is \[0.0\]; expected a finite number"),
        ("wcdas", {"engine": "fusd"}, "unknown engine 'fusd'; did you mean 'fused'"),
        ("wcdas", {"start": None}, "unknown start 'None'; known: auto, paper"),
        ("wcdas", {"scale": "learned"}, "scale is 'learned'; expected 'trainable' or a number"),
        ("wcdas", {"scale": -1.0}, "scale is -1.0; expected a number above 0"),
        ("wcdas", {"scale_init": 0.0}, "scale_init is 0.0; expected a number above 0"),
        ("wcdas", {"scale_init": 0.5, "start": "paper"}, "scale_init is 0.5; expected above 1"),
        ("cosine", {"start": "papers"}, "unknown start 'papers'; did you mean 'paper'?"),
        ("wcdas", {"scale": 30.0, "scale_init": 10.0}, "but scale is fixed at 30.0"),
        (
            "wcdas",
            {"initial": 0.0},
            "unknown option of head 'wcdas' 'initial'; did you mean 'init'",
        ),
        ("t-vmf", {"kappa": 0.0}, "kappa is 0.0; expected a number above 0"),
        ("l-softmax", {"margin": 0}, "margin is 0; expected a whole number"),
        ("sphereface", {"margin": 1.5}, "margin is 1.5; expected a whole number"),
        ("am-softmax", {"margin": -0.1}, "margin is -0.1; expected a number above 0"),
        ("arcface", {"margin": 28.6}, "margin is 28.6; expected a number above 0 and at most 3.14"),
        ("tau-norm", {"tau": -1.0}, "tau is -1.0; expected a number of at least 0"),
        ("wcdass", {}, "unknown head 'wcdass'; did you mean 'wcdas'"),
        ("qqq", {}, "unknown head 'qqq'; known: am-softmax, arcface"),
    ],
)
def test_bad_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        create_head(name, 4, 5, **options)


@pytest.mark.parametrize("sizes", [(0, 5), (4, 0), (4.0, 5), (True, 5)])
def test_bad_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="expected a whole number of at least 1"):
        wcdas.WCDASHead(*sizes)


@pytest.mark.parametrize("name", list_heads())
def test_exports_the_loss_for_any_batch(name):
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = create_head(name, 4, 5)

        def forward(self, features, labels):
            return self.head.loss(features, labels)

    module = Loss()
    features, labels = batch()
    rows = torch.export.Dim("batch", min=2)
    shapes = {"features": {0: rows}, "labels": {0: rows}}
    program = torch.export.export(module, (features.float(), labels), dynamic_shapes=shapes)
    larger = features.float().repeat(3, 1), labels.repeat(3)
    torch.testing.assert_close(program.module()(*larger), module(*larger))


@pytest.mark.parametrize("lam", [1.5, float("nan"), torch.full((6, 1), 0.5), torch.tensor(2.0)])
def test_a_bad_share_of_mixed_labels_is_refused(lam):
    features, labels = batch()
    with pytest.raises(ValueError, match="lam "):
        wcdas.WCDASHead(4, 5).loss(features, MixedLabels(labels, labels, lam))


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_repr_and_parametrisation(name, options):
    with torch.device("meta"):
        assert "num_classes=5" in repr(create_head(name, 4, 5, **options))
    head = head_of(name, **options)
    features, labels = batch()
    expected = head(features, labels)
    for key in [key for key, _ in head.named_parameters()]:
        torch.nn.utils.parametrize.register_parametrization(head, key, torch.nn.Identity())
    torch.testing.assert_close(head(features, labels), expected)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_imprinted_weights_tell_the_classes_apart(name, options):
    """Features in one narrow cone, as those of a network with rectified features are."""
    torch.manual_seed(0)
    head = create_head(name, 16, 5, **options).double()
    generator = torch.Generator().manual_seed(1)
    means = 100 * (3 + torch.rand(5, 16, generator=generator, dtype=torch.float64))
    head.imprint(means)
    assert head(means).argmax(1).equal(torch.arange(5))


@pytest.mark.parametrize("name", list_heads())
def test_imprinting_leaves_a_class_without_images_alone(name):
    head = create_head(name, 4, 5)
    before = head.weight.detach().clone()
    means = torch.rand(5, 4)
    means[3] = 0
    head.imprint(means)
    assert head.weight[3].equal(before[3])
    assert all(p.isfinite().all() for p in head.parameters())
    assert not (head.weight == before).all(dim=1)[:3].any()
    assert head.weight.requires_grad == (name != "lws")
    head.imprint(torch.zeros(5, 4))  # no class has any
    assert all(p.isfinite().all() for p in head.parameters())


@pytest.mark.parametrize("name", ["linear", "cosine", "wcdas", "wndas", "t-vmf"])
def test_imprinted_weights_keep_their_lengths_and_have_nothing_in_common(name):
    head = head_of(name)
    lengths = head.weight.norm(dim=1)
    means = 2 + batch(5)[0]
    head.imprint(means)
    torch.testing.assert_close(head.weight.norm(dim=1), lengths)
    torch.testing.assert_close(head.weight @ means.sum(0), torch.zeros_like(lengths))
    _, _, axes = torch.linalg.svd(
        means.mean(0, keepdim=True)
    )  # those but the first are its complement
    own, expected = (torch.nn.functional.normalize(v @ axes[1:].T) for v in (head.weight, means))
    torch.testing.assert_close(own, expected)

"""Probabilistic contrast: its closed form, its statistics, its step, and what it refuses."""

import copy

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ive
from scipy.stats import vonmises_fisher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.methods.proco import (
    LARGEST,
    PROCO,
    PROCO_WCDAS,
    ClassDistributions,
    ProbabilisticContrast,
    expected_logits,
)
from wcdas.targets import MixedLabels

COUNTS = torch.tensor([60, 25, 10, 5])
KAPPAS = (0.0, 1e-3, 1.0, 9.0, 10.0, 11.0, 60.0, 300.0, 3e3, LARGEST)


def at_angles(d, count=9):
    """Embeddings round a random direction, at cosines from −1 to 1."""
    torch.manual_seed(0)
    axes = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0]
    cosine = torch.linspace(-1, 1, count, dtype=torch.float64)
    z = cosine[:, None] * axes[0] + (1 - cosine**2).sqrt()[:, None] * axes[1]
    return z, axes[0], cosine


def log_c(kappa, d):
    """log I_ν(κ) − ν·log κ with 40 digits."""
    order = mpmath.mpf(d) / 2 - 1
    if kappa == 0:
        return -order * mpmath.log(2) - mpmath.loggamma(order + 1)
    return mpmath.log(mpmath.besseli(order, kappa)) - order * mpmath.log(kappa)


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("d", [16, 128, 1024])
def test_the_logits_are_those_of_bessel_functions(d, temperature):
    """Over all concentrations that occur, in float32 too; at 1e5 I_ν itself would overflow."""
    z, direction, cosine = at_angles(d)
    parameters = torch.tensor(KAPPAS, dtype=torch.float64)[:, None] * direction
    with mpmath.workdps(40):
        expected = [
            [
                float(log_c(mpmath.sqrt(k**2 + 2 * k * c / t + 1 / t**2), d) - log_c(k, d))
                for k in map(mpmath.mpf, KAPPAS)
            ]
            for c, t in ((mpmath.mpf(float(c)), mpmath.mpf(temperature)) for c in cosine)
        ]
    for dtype, rounding in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        found = expected_logits(z.to(dtype), parameters.to(dtype), temperature)
        assert found.dtype == dtype
        atol = rounding + {16: 2e-5, 128: 1e-8, 1024: 0}[d]  # what the expansion leaves out
        np.testing.assert_allclose(found.double().numpy(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_slope_is_a_ratio_of_bessel_functions(dtype):
    """d log C/dκ̃ = I_{ν+1}(κ̃)/I_ν(κ̃), and dκ̃/dcosine = κ/(τκ̃)."""
    d, temperature = 128, 0.1
    z, direction, cosine = at_angles(d)
    parameters = torch.tensor(KAPPAS, dtype=torch.float64)[:, None] * direction
    z = z.to(dtype).requires_grad_()
    logits = expected_logits(z, parameters.to(dtype), temperature)
    for j, kappa in enumerate(KAPPAS):
        (slope,) = torch.autograd.grad(logits[:, j].sum(), z, retain_graph=True)
        square = kappa**2 + 2 * kappa * cosine.numpy() / temperature + temperature**-2
        grown = np.sqrt(square.clip(1e-18))  # 0, where κ = 1/τ and the cosine is −1
        ratio = np.array([float(mpmath.besseli(64, k) / mpmath.besseli(63, k)) for k in grown])
        expected = ratio * kappa / (temperature * grown)
        found = slope.double() @ direction
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-6, atol=1e-9)


def test_gradcheck():
    torch.manual_seed(0)
    z = F.normalize(torch.randn(3, 16, dtype=torch.float64), dim=1).requires_grad_()
    parameters = 40 * torch.randn(2, 16, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: expected_logits(z, parameters, 0.1), z)


@pytest.mark.parametrize("kappa", [0.0, 3.0, 80.0])
def test_an_expectation_by_integration(kappa):
    """Over the cosine t to the direction of κμ + z/τ, the sphere weighing (1 − t²)^((d − 3)/2)."""
    d, temperature = 24, 0.2
    z, direction, _ = at_angles(d)
    found = expected_logits(z, kappa * direction[None], temperature)[:, 0]

    def integral(k):
        def density(t):
            return np.exp(k * (t - 1)) * (1 - t * t) ** ((d - 3) / 2)

        return quad(density, -1, 1, epsabs=0, epsrel=1e-9)[0]

    for i in range(len(z)):
        grown = float((kappa * direction + z[i] / temperature).norm())
        expected = grown - kappa + np.log(integral(grown) / integral(kappa))
        assert found[i].item() == pytest.approx(expected, abs=1e-5)


def test_the_loss_is_the_contrastive_one_of_many_samples():
    """−log Σ_{p of the class} exp(z·p/τ) / Σ_a exp(z·a/τ) with samples of every class, as many as
    its prior says; ten standard errors of the estimate."""
    d, temperature, samples = 32, 0.2, 60_000
    random = np.random.default_rng(0)
    directions = F.normalize(torch.from_numpy(random.normal(size=(3, d))), dim=1)
    kappas, prior = np.array([2.0, 40.0, 300.0]), np.array([0.6, 0.3, 0.1])
    z = F.normalize(directions[[0, 1, 2, 1]] + 0.1 * torch.from_numpy(random.normal(size=(4, d))))
    labels = torch.tensor([0, 1, 2, 0])
    parameters = torch.from_numpy(kappas)[:, None] * directions
    logits = expected_logits(z, parameters, temperature) + torch.from_numpy(prior).log()
    found = F.cross_entropy(logits, labels, reduction="none")
    shares, variances = np.zeros((4, 3)), np.zeros((4, 3))
    for j in range(3):
        drawn = vonmises_fisher(directions[j].numpy(), kappas[j]).rvs(samples, random_state=random)
        exponentials = np.exp(z.numpy() @ drawn.T / temperature)
        shares[:, j] = prior[j] * exponentials.mean(1)
        variances[:, j] = prior[j] ** 2 * exponentials.var(1) / samples
    for i, own in enumerate(labels):
        everything = shares[i].sum()
        expected = np.log(everything / shares[i, own])
        slope = 1 / everything - np.eye(3)[own] / shares[i, own]  # of it, to the shares
        error = np.sqrt((slope**2 * variances[i]).sum())
        assert error < 0.02
        assert abs(found[i].item() - expected) < 10 * error


def embeddings(count, d, seed, spread=0.3):
    random = np.random.default_rng(seed)
    labels = random.choice(4, count, p=[0.6, 0.25, 0.1, 0.05])
    vectors = np.eye(4, d)[labels] + spread * random.normal(size=(count, d))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


def test_concentrations_by_the_formula():
    z, labels = embeddings(40, 16, seed=1)
    labels[labels == 3] = 2
    classes = ClassDistributions(16, 4).double()
    classes.add(torch.from_numpy(z), torch.from_numpy(labels), torch.tensor(0.0))
    for j, found in enumerate(classes.parameters_of_classes()[:3]):
        mean = z[labels == j].mean(0)
        r = np.linalg.norm(mean)
        np.testing.assert_allclose(found, r * (16 - r**2) / (1 - r**2) * mean / r, rtol=1e-12)


@pytest.mark.parametrize("kappa", [5.0, 50.0, 500.0, 20_000.0])
def test_concentrations_are_near_the_most_likely_ones(kappa):
    """Where A(κ) = I_{d/2}(κ)/I_{d/2−1}(κ) is the length of the mean."""
    d = 128

    def length(k):
        return ive(d / 2, k) / ive(d / 2 - 1, k)

    classes = ClassDistributions(d, 1).double()
    classes.sums[1, 0, 5] = 1000 * length(kappa)
    classes.counts[1, 0] = 1000
    found = classes.parameters_of_classes()[0]
    assert found.count_nonzero() == 1
    likely = brentq(lambda k: length(k) - length(kappa), 1e-3, 1e6)
    assert found[5].item() == pytest.approx(likely, rel=0.01)


def test_classes_of_none_and_of_one_embedding():
    classes = ClassDistributions(32, 3)
    z = F.normalize(torch.randn(1, 32), dim=1)
    classes.add(z.repeat(2, 1), torch.tensor([1, 1]), torch.tensor(0.0))
    found = classes.parameters_of_classes()
    assert not found[[0, 2]].any()
    torch.testing.assert_close(found[1], LARGEST * z[0])
    logits = expected_logits(z, found, 0.1)
    assert logits.isfinite().all()
    assert logits[0, 1].item() == pytest.approx(10, abs=0.01)  # z·z/τ


def test_statistics_are_those_of_this_epoch_and_the_one_before():
    """Running means as the authors' code has them: two, of which the one that is used is taken
    over by the other when an epoch begins, and goes on."""
    d, classes = 16, ClassDistributions(16, 4).double()
    used, gathered = [np.zeros((4, d)), np.zeros(4)], [np.zeros((4, d)), np.zeros(4)]
    for epoch in range(4):
        if epoch:
            used, gathered = gathered, [np.zeros((4, d)), np.zeros(4)]
        for step in range(3):
            z, labels = embeddings(6, d, seed=10 * epoch + step)
            for mean, amount in (used, gathered):
                for vector, label in zip(z, labels, strict=True):
                    amount[label] += 1
                    mean[label] += (vector - mean[label]) / amount[label]
            given = torch.from_numpy(z), torch.from_numpy(labels), torch.tensor(float(epoch))
            classes.add(*given)
            mean = (classes.sums.sum(0) / classes.counts.sum(0).clamp_min(1)[:, None]).numpy()
            np.testing.assert_allclose(mean, used[0], atol=1e-12)
            np.testing.assert_allclose(classes.counts.sum(0).numpy(), used[1])
    assert used[1].sum() == 36


def make_model(method=PROCO, counts=COUNTS, **options):
    torch.manual_seed(0)
    given = dict(method.options) | {"projection": 16, "hidden": 24} | options
    parts = Parts(
        create_backbone("resnet8", channels=1),
        lambda length: create_head(method.defaults["head"]["name"], length, len(counts)),
        counts,
        given,
    )
    model = method.build_model(parts).double().train()
    log_prior = (counts.double() / counts.sum()).log()

    def loss(features, target):
        return model.head.loss(features, target, log_prior=log_prior)

    state = StepState("representation", counts, given, model.features, loss, log_prior=log_prior)
    return model, state


def make_batch(count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(3, count, 1, 8, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (count,), generator=generator)
    return StepBatch(images[0], labels, labels, (images[1], images[2]))


def of_samples(z, mean, r, d, temperature):
    """The logits of one class by SciPy's Bessel functions."""
    order, kappa = d / 2 - 1, r * (d - r**2) / (1 - r**2)

    def log_of(k):
        return np.log(ive(order, k)) + k - order * np.log(k)

    grown = np.linalg.norm(kappa * mean / r + z / temperature, axis=1)
    return log_of(grown) - log_of(kappa)


@pytest.mark.parametrize("method", [PROCO, PROCO_WCDAS], ids=["linear", "wcdas"])
def test_steps_from_their_parts(method):
    """Two steps in an epoch and one in the next, whose statistics are all of them."""
    model, state = make_model(method, weight=0.7)
    seen, seen_labels = np.zeros((0, 16)), np.zeros(0, dtype=int)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, epoch in enumerate((0, 0, 1)):
        batch, reference = make_batch(8, seed=number), copy.deepcopy(model)
        state.epoch = torch.tensor(float(epoch))
        with torch.no_grad():
            features = reference.features(torch.cat((batch.inputs, *batch.views)))
            z = F.normalize(reference.auxiliary.projection(features[8:]), dim=1).numpy()
            logits = reference.head(features[:8], batch.labels) + state.log_prior
        labels = batch.labels.repeat(2).numpy()
        seen, seen_labels = np.concatenate((seen, z)), np.concatenate((seen_labels, labels))
        columns = []
        for j in range(4):
            mean = seen[seen_labels == j].mean(0)
            columns.append(of_samples(z, mean, np.linalg.norm(mean), 16, 0.1))
        contrast = torch.from_numpy(np.stack(columns, 1)) + state.log_prior
        expected = F.cross_entropy(logits, batch.labels)
        expected = expected + 0.7 * F.cross_entropy(contrast, torch.from_numpy(labels))
        loss = method.training_step(model, batch, state)
        assert loss.item() == pytest.approx(expected.item(), abs=2e-5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("method", [PROCO, PROCO_WCDAS], ids=["linear", "wcdas"])
def test_gradients_reach_everything(method):
    model, state = make_model(method)
    method.training_step(model, make_batch(), state).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name == "auxiliary.projection.0.bias", name  # batch norm
    assert not any(parameter.requires_grad for parameter in model.auxiliary.buffers())


def test_a_class_without_images_takes_no_part():
    model, state = make_model(counts=torch.tensor([60, 25, 10, 0]))
    batch = make_batch()
    labels = batch.labels.clamp_max(2)
    batch = batch._replace(target=labels, labels=labels)
    loss = PROCO.training_step(model, batch, state)
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_classifier_may_see_mixed_images():
    """The contrast is of the views, which are not mixed."""
    batch, losses = make_batch(), []
    other = batch.labels.flip(0)
    for target in (batch.labels, other, MixedLabels(batch.labels, other, 0.3)):
        model, state = make_model()
        losses.append(PROCO.training_step(model, batch._replace(target=target), state))
    torch.testing.assert_close(losses[2], 0.3 * losses[0] + 0.7 * losses[1])
    assert losses[0] != losses[1]


def test_a_stage_without_views_is_an_ordinary_one():
    model, state = make_model()
    batch = make_batch()._replace(views=())
    expected = F.cross_entropy(model(batch.inputs) + state.log_prior, batch.labels)
    torch.testing.assert_close(PROCO.training_step(model, batch, state), expected)


class OnTheDevice(TorchDispatchMode):
    """Refuses every operation that touches a tensor of the host."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        for tensor in tree_leaves((args, kwargs)):
            assert not isinstance(tensor, torch.Tensor) or tensor.is_cuda, operation
        return operation(*args, **(kwargs or {}))


def test_nothing_waits_for_the_device():
    """Tensors that only claim to be on a GPU have no values to wait for: reading one fails."""
    parts = Parts(create_backbone("resnet8"), lambda _: None, COUNTS, PROCO.options)
    branch = ProbabilisticContrast(parts)
    with FakeTensorMode(allow_non_fake_inputs=True):
        branch = branch.to("cuda")
        features = torch.empty(12, 64, device="cuda")
        labels = torch.empty(12, dtype=torch.int64, device="cuda")
        epoch, log_prior = torch.empty((), device="cuda"), torch.empty(4, device="cuda")
        with OnTheDevice():
            loss = branch(features, labels, epoch, log_prior)
    assert loss.shape == ()
    assert loss.is_cuda


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "options.temperature is 0.0; expected a number above 0"),
        ({"weight": -1.0}, "options.weight is -1.0; expected a number of at least 0"),
        ({"projection": 8}, "options.projection is 8; expected a whole number of at least 16"),
        ({"hidden": 0.5}, "options.hidden is 0.5; expected a whole number of at least 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        make_model(**options)

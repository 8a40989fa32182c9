"""Parametric contrastive learning: its loss, its step, and what it refuses."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import SupConLoss

from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.methods.contrastive import EMPTY
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.methods.paco import PACO, PACO_WCDAS, paco_loss

COUNTS = torch.tensor([60, 25, 10, 5])


def unit_rows(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, 6, generator=generator, dtype=torch.float64), dim=1)


def by_hand(logits, queries, others, labels, other_labels, alpha, beta, gamma, temperature):
    """The paper's loss, sample by sample and pair by pair."""
    total = 0.0
    for i, own in enumerate(labels):
        contrasted = [a for a in range(len(others)) if a != i and other_labels[a] != EMPTY]
        pairs = {a: math.exp(queries[i] @ others[a] / temperature) for a in contrasted}
        denominator = sum(math.exp(z) for z in logits[i]) + gamma * sum(pairs.values())
        loss = -beta * math.log(math.exp(logits[i][own]) / denominator)
        weight = beta
        for a in contrasted:
            if other_labels[a] == own:
                loss -= alpha * math.log(pairs[a] / denominator)
                weight += alpha
        total += loss / weight
    return total / len(labels)


def problem(batch=5, queued=7, seed=0):
    """Logits, queries, everything they are contrasted with, and labels; two places are empty."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (batch,), generator=generator)
    logits = 2 * torch.randn(batch, 4, generator=generator, dtype=torch.float64)
    queries = unit_rows(batch, seed + 1)
    others = torch.cat((queries, unit_rows(batch + queued, seed + 2)))
    queue_labels = torch.randint(4, (queued,), generator=generator)
    queue_labels[-2:] = EMPTY
    return logits, queries, others, labels, torch.cat((labels, labels, queue_labels))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("alpha", "beta", "gamma", "temperature"),
    [(0.02, 1.0, 1.0, 0.05), (0.05, 1.0, 1.0, 0.2), (1.0, 0.5, 0.3, 0.5), (0.0, 1.0, 1.0, 0.07)],
)
def test_the_loss_by_hand(alpha, beta, gamma, temperature, seed):
    given = problem(seed=seed)
    options = {"alpha": alpha, "beta": beta, "gamma": gamma, "temperature": temperature}
    expected = by_hand(*(tensor.numpy() for tensor in given), **options)
    assert paco_loss(*given, **options).item() == pytest.approx(expected, rel=1e-12)


def test_without_pairs_it_is_cross_entropy():
    """α = γ = 0: with the prior in the logits, that of logit adjustment."""
    logits, *others = problem()
    labels = others[2]
    adjusted = logits + (COUNTS / COUNTS.sum()).log()
    value = paco_loss(adjusted, *others, alpha=0.0, beta=1.0, gamma=0.0, temperature=0.05)
    torch.testing.assert_close(value, F.cross_entropy(adjusted, labels), rtol=1e-12, atol=0)


def test_without_centres_it_is_the_supervised_contrastive_loss():
    """Logits far below the pairs leave the softmax to the pairs."""
    queries = unit_rows(8, 3)
    labels = torch.tensor([0, 1, 0, 2, 1, 0, 2, 2])
    logits = torch.full((8, 4), -1e3, dtype=torch.float64)
    options = {"alpha": 1.0, "beta": 0.0, "gamma": 1.0, "temperature": 0.1}
    value = paco_loss(logits, queries, queries, labels, labels, **options)
    torch.testing.assert_close(value, SupConLoss(0.1)(queries, labels), rtol=1e-12, atol=0)


def test_the_best_shares_are_those_of_the_paper():
    """With K positives the centre is to have 1/(1 + αK) of the softmax, a positive α/(1 + αK)."""
    alpha, labels = 0.3, torch.zeros(1, dtype=torch.long)
    query, others = torch.eye(5, dtype=torch.float64)[:1], torch.eye(5, dtype=torch.float64)
    centre = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    others = torch.cat((query, others[1:4])).requires_grad_()  # three positives, all at cosine 0
    given = labels, torch.zeros(4, dtype=torch.long)
    options = {"alpha": alpha, "beta": 1.0, "gamma": 1.0, "temperature": 1.0}
    with torch.no_grad():
        centre += math.log(1 / alpha)  # so that the shares are as the paper has them
    paco_loss(centre, query, others, *given, **options).backward()
    assert centre.grad.abs().item() < 1e-15
    assert others.grad.abs().max() < 1e-15


def test_gradcheck():
    logits, queries, _, labels, other_labels = problem(batch=3, queued=4)
    rest = unit_rows(7, 5)
    options = {"alpha": 0.2, "beta": 1.0, "gamma": 0.7, "temperature": 0.5}

    def loss(logits, queries):
        return paco_loss(
            logits, queries, torch.cat((queries, rest)), labels, other_labels, **options
        )

    assert torch.autograd.gradcheck(loss, (logits.requires_grad_(), queries.requires_grad_()))


def make_model(method=PACO, dtype=torch.float64, **options):
    torch.manual_seed(0)
    head = {"bias": False} if method is PACO else {"scale_init": 20.0}
    given = dict(method.options) | {"queue": 10, "projection": 8, "momentum": 0.5} | options
    parts = Parts(
        create_backbone("resnet32", channels=1),
        lambda length: create_head(method.defaults["head"]["name"], length, 4, **head),
        COUNTS,
        given,
    )
    model = method.build_model(parts).to(dtype).train()

    def loss(features, target):
        return model.head.loss(features, target)

    return model, StepState("representation", COUNTS, given, model.features, loss)


def make_batch(seed, count=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    images, view = torch.randn(2, count, 1, 8, 8, generator=generator).to(dtype)
    labels = torch.randint(4, (count,), generator=generator)
    return StepBatch(images, labels, labels, (view,))


@pytest.mark.parametrize("method", [PACO, PACO_WCDAS], ids=["linear", "wcdas"])
def test_a_step_from_its_parts(method):
    """Three steps with a batch of 6 and a queue of 10: empty, filled in part, and wrapped."""
    model, state = make_model(method)
    keys, key_labels = np.zeros((0, 8)), np.zeros(0, dtype=int)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for seed in range(3):
        batch, reference = make_batch(seed), copy.deepcopy(model)
        with torch.no_grad():
            features = reference.features(batch.inputs)
            queries = F.normalize(reference.auxiliary.projection(features), dim=1).numpy()
            encoder = reference.auxiliary.encoder
            for part, trained in (
                (encoder.backbone, reference.backbone),
                (encoder.projection, reference.auxiliary.projection),
            ):
                for k, q in zip(part.parameters(), trained.parameters(), strict=True):
                    k.copy_(0.5 * k + 0.5 * q)
            made = encoder.projection(encoder.backbone(batch.views[0]))
            made = F.normalize(made, dim=1).numpy()
            logits = reference.head(features) + (COUNTS.double() / COUNTS.sum()).log()
        labels = batch.labels.numpy()
        expected = by_hand(
            logits.numpy(),
            queries,
            np.concatenate((queries, made, keys)),
            labels,
            np.concatenate((labels, labels, key_labels)),
            **{name: state.options[name] for name in ("alpha", "beta", "gamma", "temperature")},
        )
        loss = method.training_step(model, batch, state)
        assert loss.item() == pytest.approx(expected, rel=1e-6)  # the prior is kept in float32
        keys = np.concatenate((keys, made))[-10:]
        key_labels = np.concatenate((key_labels, labels))[-10:]
        queue = model.auxiliary.queue
        order = (int(queue.position) + np.arange(10)) % 10 if seed else np.arange(6)
        np.testing.assert_allclose(queue.keys.numpy()[order], keys, atol=1e-7)
        assert queue.labels.numpy()[order].tolist() == key_labels.tolist()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_gradients_reach_everything_but_the_key_encoder():
    model, state = make_model()
    PACO.training_step(model, make_batch(0), state).backward()
    for name, parameter in model.named_parameters():
        if name.startswith("auxiliary.encoder."):
            assert parameter.grad is None, name
        else:
            assert parameter.grad.isfinite().all(), name
    assert model.head.weight.grad.abs().sum() > 0
    assert model.auxiliary.projection[0].weight.grad.abs().sum() > 0


def test_a_stage_without_views_is_an_ordinary_one():
    model, state = make_model()
    batch = make_batch(0)._replace(views=())
    expected = F.cross_entropy(model(batch.inputs), batch.labels)
    torch.testing.assert_close(PACO.training_step(model, batch, state), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "options.temperature is 0.0; expected a number above 0"),
        ({"beta": 0.0}, "options.beta is 0.0; expected a number above 0"),
        ({"alpha": -1.0}, "options.alpha is -1.0; expected a number of at least 0"),
        ({"momentum": 1.0}, "options.momentum is 1.0; expected a number of at least 0 and below 1"),
        ({"queue": 0}, "options.queue is 0; expected a number above 0"),
        ({"projection": -2}, "options.projection is -2; expected a number above 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        make_model(**options)


def test_a_class_without_images_is_refused():
    parts = Parts(
        create_backbone("resnet32", channels=1),
        lambda length: create_head("linear", length, 2),
        torch.tensor([3, 0]),
        PACO.options,
    )
    with pytest.raises(InputError, match="paco needs an image of every class, but class 1 has"):
        PACO.build_model(parts)

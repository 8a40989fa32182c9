"""The head of OLTR: every formula by hand, and when it uses its memory."""

import copy

import numpy as np
import pytest
import torch

from wcdas.heads import create_head
from wcdas.heads.oltr import OLTRHead

CLASSES, LENGTH = 5, 6


@pytest.fixture
def head():
    torch.manual_seed(0)
    return OLTRHead(create_head("linear", LENGTH, CLASSES)).double()


@pytest.fixture
def seen():
    generator = torch.Generator().manual_seed(1)
    features = 3 * torch.randn(20, LENGTH, generator=generator, dtype=torch.float64)
    return features, torch.arange(20) % CLASSES


def by_hand(head, x):
    """Equations 1 to 6 with the constants of the authors' code, sample by sample."""
    state = {name: value.numpy() for name, value in head.state_dict().items()}
    M, w = state["memory"], state["weight"]
    logits = []
    for v_direct in x:
        scores = state["hallucinator.weight"] @ v_direct + state["hallucinator.bias"]
        o = np.exp(scores) / np.exp(scores).sum()
        v_memory = sum(o[j] * M[j] for j in range(CLASSES))
        e = np.tanh(state["selector.weight"] @ v_direct + state["selector.bias"])
        reachability = 10 / min(np.linalg.norm(v_direct - c) for c in M)
        v = reachability * (v_direct + e * v_memory)
        norm = np.linalg.norm(v)
        squashed = norm / (1 + norm) * v / norm
        logits.append([16 * squashed @ row / np.linalg.norm(row) for row in w])
    return torch.tensor(np.array(logits))


def test_with_a_memory_every_formula_is_that_of_the_paper(head, seen):
    head.fill_memory(*seen)
    x = 2 * torch.randn(7, LENGTH, dtype=torch.float64)
    torch.testing.assert_close(head(x), by_hand(head, x.numpy()))


def test_without_a_memory_it_is_the_plain_classifier(head, seen):
    x, y = seen
    expected = torch.nn.functional.linear(x, head.hallucinator.weight, head.hallucinator.bias)
    assert head(x).equal(expected)
    head.loss(x, y).backward()
    assert head.hallucinator.weight.grad is not None
    assert head.weight.grad is head.selector.weight.grad is head.memory.grad is None


def test_the_memory_is_the_mean_of_every_class(head, seen):
    features, labels = seen
    head.fill_memory(features, labels)
    means = [features.numpy()[labels.numpy() == j].mean(0) for j in range(CLASSES)]
    np.testing.assert_allclose(head.memory.detach().numpy(), np.array(means), rtol=1e-12)


def test_a_class_without_features_gets_the_mean_of_the_others(head, seen):
    features, labels = seen
    kept = labels != 3
    head.fill_memory(features[kept], labels[kept])
    memory = head.memory.detach()
    torch.testing.assert_close(memory[3], memory[[0, 1, 2, 4]].mean(0))


def test_gradients_reach_every_part_but_the_memory(head, seen):
    features, labels = seen
    head.fill_memory(features, labels)
    x = (features + 0.5).requires_grad_()
    head.loss(x, labels).backward()
    trained = dict(head.named_parameters())
    assert trained.pop("memory").grad is None
    assert all((p.grad != 0).any() for p in trained.values())
    assert (x.grad != 0).any()


def test_derivatives(head, seen):
    head.fill_memory(*seen)
    x = (seen[0][:4] + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(head, x)
    assert torch.autograd.gradgradcheck(head, x)


def test_a_feature_in_its_own_centroid_is_finite(head, seen):
    """A class with one image: its feature is the centroid."""
    features, labels = seen[0][:CLASSES], torch.arange(CLASSES)
    head.fill_memory(features, labels)
    x = features.clone().requires_grad_()
    loss = head.loss(x, labels)
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()


def test_the_weights_say_whether_there_is_a_memory(head, seen):
    other = copy.deepcopy(head)
    before = copy.deepcopy(head.state_dict())
    head.fill_memory(*seen)
    assert not head(seen[0]).equal(other(seen[0]))
    other.load_state_dict(head.state_dict())
    assert other(seen[0]).equal(head(seen[0]))
    other.load_state_dict(before)
    assert other(seen[0]).equal(other.hallucinator(seen[0]))


def test_computes_in_float32_under_autocast(head, seen):
    head.float().fill_memory(seen[0].float(), seen[1])
    features = seen[0].bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(features)
    assert logits.dtype == torch.float32
    assert logits.equal(head(features.float()))


def test_compiles_as_one_graph(head, seen):
    head.fill_memory(*seen)
    torch._dynamo.reset()
    compiled = torch.compile(head.loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*seen), head.loss(*seen))

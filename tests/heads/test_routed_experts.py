"""Routers: how many experts a sample gets, and what the prediction is then."""

import numpy as np
import pytest
import torch

from wcdas.heads import create_head
from wcdas.heads.experts import ALWAYS, RoutedExpertsHead

X = torch.randn(40, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def head() -> RoutedExpertsHead:
    torch.manual_seed(3)
    return RoutedExpertsHead([create_head("linear", 4, 7) for _ in range(3)], top=5)


def test_all_experts_until_a_threshold_is_set(head):
    torch.testing.assert_close(head(X), head.expert_logits(X).mean(0))
    assert head.experts_used(X).eq(3).all()


def test_extremes(head):
    head.threshold.fill_(-ALWAYS)
    torch.testing.assert_close(head(X), head.expert_logits(X)[0])
    assert head.experts_used(X).eq(1).all()
    head.threshold.fill_(ALWAYS)
    assert head.experts_used(X).eq(3).all()


def asked_one_after_another(head: RoutedExpertsHead, x: np.ndarray) -> tuple[np.ndarray, int]:
    """The paper's procedure for one sample, in NumPy."""
    state = {key: value.double().numpy() for key, value in head.state_dict().items()}
    total = np.zeros(7)
    for k in range(3):
        part = x[4 * k : 4 * k + 4]
        total += part @ state[f"experts.{k}.weight"].T + state[f"experts.{k}.bias"]
        mean = total / (k + 1)
        if k == 2:
            break
        hidden = state[f"hidden.{k}.weight"] @ (part / np.linalg.norm(part))
        hidden = np.maximum(hidden + state[f"hidden.{k}.bias"], 0)
        seen = np.concatenate([np.sort(mean)[::-1][:5], hidden])
        r = state["router.weight"][0] @ seen + state["router.bias"][0]
        if r <= state["threshold"]:
            break
    return mean, k + 1


def test_sample_by_sample(head):
    calls = head.calls(X, head.means(head.expert_logits(X)))
    head.threshold.copy_(calls.median())
    expected = [asked_one_after_another(head, x) for x in X.double().numpy()]
    used = torch.tensor([k for _, k in expected])
    assert set(used.tolist()) == {1, 2, 3}
    assert head.experts_used(X).equal(used)
    z = torch.tensor(np.stack([mean for mean, _ in expected]))
    torch.testing.assert_close(head(X).double(), z, rtol=1e-5, atol=1e-5)


def test_a_batch_changes_nothing(head):
    head.threshold.copy_(head.calls(X, head.means(head.expert_logits(X))).median())
    alone = torch.cat([head(x) for x in X.split(1)])
    torch.testing.assert_close(head(X), alone)


def test_weights_of_the_experts_hold_among_those_asked(head):
    head.expert_weights.copy_(torch.tensor([0.2, 0.6, 0.2]))
    one, two, three = head.expert_logits(X)
    means = head.means(head.expert_logits(X))
    torch.testing.assert_close(means[0], one)
    torch.testing.assert_close(means[1], (one + 3 * two) / 4)
    torch.testing.assert_close(means[2], 0.2 * one + 0.6 * two + 0.2 * three)


def test_stored_with_its_threshold(head):
    head.threshold.fill_(0.1)
    other = RoutedExpertsHead([create_head("linear", 4, 7) for _ in range(3)], top=5)
    other.load_state_dict(head.state_dict())
    assert other(X).equal(head(X))


def test_few_classes_show_all_their_logits():
    head = RoutedExpertsHead([create_head("wcdas", 4, 3) for _ in range(2)], top=30)
    assert head(torch.randn(2, 8)).shape == (2, 3)
    assert head.double()(torch.randn(2, 8).double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert head.float()(torch.randn(2, 8).bfloat16()).dtype == torch.float32


def test_a_class_depends_on_the_others(head):
    """By the routers, which look at the highest logits."""
    assert not head.separable

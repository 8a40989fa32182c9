"""Heads side by side: their mean, each on its own, and in the trainer's hands."""

import pytest
import torch
import torch.nn.functional as F

from wcdas.heads import CosineHead, LinearHead, WCDASHead, create_head
from wcdas.heads.experts import ExpertsHead
from wcdas.targets import MixedLabels

KINDS = ["linear", "cosine", "wcdas", "arcface"]


def make(kind: str = "linear", count: int = 3) -> ExpertsHead:
    torch.manual_seed(0)
    return ExpertsHead([create_head(kind, 4, 5) for _ in range(count)])


X = torch.randn(6, 12, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([0, 4, 2, 2, 1, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_mean_of_the_experts(kind):
    head = make(kind)
    each = [expert(x) for expert, x in zip(head.experts, X.split(4, dim=1), strict=True)]
    torch.testing.assert_close(head(X), sum(each) / 3)
    torch.testing.assert_close(head.expert_logits(X), torch.stack(each))
    assert not each[0].allclose(each[1], atol=1e-3)


def test_weights_are_used_and_stored():
    head = make()
    head.expert_weights.copy_(torch.tensor([0.5, 0.0, 0.5]))
    one, _, three = head.expert_logits(X)
    torch.testing.assert_close(head(X), (one + three) / 2)
    other = make()
    other.load_state_dict(head.state_dict())
    assert other(X).equal(head(X))


def test_margins_act_on_every_expert_when_labels_are_given():
    head = make("arcface")
    assert (head.expert_logits(X, Y) - head.expert_logits(X)).abs().amax((1, 2)).min() > 0.1


def test_weight_is_side_by_side():
    head = make()
    assert head.weight.shape == (5, 12) == (head.num_classes, head.in_features)
    assert head.weight[:, 4:8].equal(head.experts[1].weight)
    assert "weight" not in dict(head.named_parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", [None, torch.tensor([0.5, 0.2, 0.1, 0.1, 0.1]).log()])
def test_one_expert_has_the_loss_of_its_head(kind, prior):
    head, part = make(kind), X[:, 4:8]
    expected = head.experts[1].loss(part, Y, label_smoothing=0.1, log_prior=prior)
    with head.only(1, prior):
        torch.testing.assert_close(head.loss(X, Y, label_smoothing=0.1), expected)
        torch.testing.assert_close(
            head(X, Y), head.experts[1](part, Y) + (0 if prior is None else prior)
        )
    torch.testing.assert_close(head.loss(X, Y), F.cross_entropy(head(X, Y), Y))


def test_a_further_prior_is_added_to_that_of_the_expert():
    head = make("wcdas")
    own, other = torch.randn(2, 5)
    with head.only(0, own):
        value = head.loss(X, Y, log_prior=other)
    torch.testing.assert_close(value, head.experts[0].loss(X[:, :4], Y, log_prior=own + other))


def test_mixed_labels_and_probabilities():
    head, prior = make("wcdas"), torch.randn(5)
    mixed = MixedLabels(Y, Y.flip(0), 0.3)
    soft = torch.full((6, 5), 0.2)
    with head.only(2, prior):
        values = [head.loss(X, target) for target in (mixed, soft)]
    for value, target in zip(values, (mixed, soft), strict=True):
        expected = head.experts[2].loss(X[:, 8:], target, log_prior=prior)
        torch.testing.assert_close(value, expected)


def test_the_loss_of_one_expert_leaves_the_others_alone():
    head = make()
    with head.only(1):
        head.loss(X, Y).backward()
    assert [expert.weight.grad is not None for expert in head.experts] == [False, True, False]


def test_an_error_inside_does_not_leave_one_expert_behind():
    head = make()
    expected = head(X)
    with pytest.raises(ValueError, match="out of range"), head.only(1):
        head.loss(X, Y + 5)
    assert head(X).equal(expected)


@pytest.mark.parametrize("head_class", [LinearHead, CosineHead, WCDASHead])
def test_full_precision(head_class):
    head = ExpertsHead([head_class(4, 5) for _ in range(2)])
    with torch.autocast("cpu", torch.bfloat16):
        z, each = head(X[:, :8].bfloat16()), head.expert_logits(X[:, :8].bfloat16())
    assert z.dtype == each.dtype == torch.float32
    assert head.double()(X[:, :8].double()).dtype == torch.float64


def test_wrong_features_are_named():
    with pytest.raises(ValueError, match=r"expected \(batch, 12\)"):
        make()(torch.randn(2, 4))
    with pytest.raises(ValueError, match=r"expected \(batch, 12\)"):
        make().expert_logits(torch.randn(2, 4))

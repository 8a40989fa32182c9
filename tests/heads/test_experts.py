"""Heads side by side: their mean, each on its own, and in the trainer's hands."""

import pytest
import torch
import torch.nn.functional as F

from wcdas.heads import CosineHead, LinearHead, WCDASHead, create_head
from wcdas.heads.experts import ExpertsHead

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
def test_every_expert_has_its_own_features_and_loss(kind):
    head = make(kind)
    experts, parts = zip(*head.parts(X), strict=True)
    assert list(experts) == list(head.experts)
    assert torch.cat(parts, dim=1).equal(X)
    torch.testing.assert_close(head.loss(X, Y), F.cross_entropy(head(X, Y), Y))


def test_the_loss_of_one_expert_leaves_the_others_alone():
    head = make()
    expert, part = list(head.parts(X))[1]
    expert.loss(part, Y).backward()
    assert [expert.weight.grad is not None for expert in head.experts] == [False, True, False]


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


@pytest.mark.parametrize("kind", KINDS)
def test_every_expert_is_imprinted_with_its_own_features(kind):
    head, alone = make(kind), make(kind)
    means = torch.rand(5, 12, generator=torch.Generator().manual_seed(2))
    head.imprint(means)
    for expert, part in zip(alone.experts, means.split(4, dim=1), strict=True):
        expert.imprint(part)
    assert head(X).equal(alone(X))


def test_a_part_of_the_classes():
    head, x = ExpertsHead([LinearHead(4, 6), WCDASHead(4, 6)]), torch.randn(5, 8)
    head.expert_weights.copy_(torch.tensor([0.3, 0.7]))
    part = head.part(slice(2, 5))
    torch.testing.assert_close(part(x), head(x)[:, 2:5])
    assert [expert.num_classes for expert in part.experts] == [3, 3]
    assert part.experts[0].weight.data_ptr() == head.experts[0].weight[2:].data_ptr()

"""τ-normalisation and learnable weight scaling of a trained linear head."""

import pytest
import torch
from torch import nn

from wcdas import LinearHead, LWSHead, TauNormHead


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("make", [LinearHead, nn.Linear])
def test_without_change_both_are_the_linear_head(make, bias):
    linear = make(6, 4, bias=bias)
    features = torch.randn(5, 6)
    expected = linear(features)
    torch.testing.assert_close(TauNormHead.from_linear(linear, tau=0.0)(features), expected)
    torch.testing.assert_close(LWSHead.from_linear(linear)(features), expected)


def test_the_weights_taken_are_those_the_logits_use():
    features = torch.randn(5, 6)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))
    torch.testing.assert_close(LWSHead.from_linear(normed)(features), normed(features))
    scaled = LWSHead.from_linear(LinearHead(6, 4))
    scaled.class_scale.data = torch.tensor([1.0, 2.0, 3.0, 4.0])
    torch.testing.assert_close(TauNormHead.from_linear(scaled, 0.0)(features), scaled(features))


def test_linear_is_nn_linear():
    torch.manual_seed(0)
    ours = LinearHead(6, 4)
    torch.manual_seed(0)
    theirs = nn.Linear(6, 4)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    features = torch.randn(5, 6)
    torch.testing.assert_close(ours(features), theirs(features))


@pytest.mark.parametrize("tau", [0.3, 0.7, 1.0, 2.0])
def test_tau_levels_the_norms(tau):
    linear = LinearHead(6, 4, bias=False)
    linear.weight.data *= torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    norms = linear.weight.norm(dim=1)
    levelled = TauNormHead.from_linear(linear, tau).class_weight(torch.float32)
    torch.testing.assert_close(levelled.norm(dim=1), norms ** (1 - tau))
    direction = nn.functional.cosine_similarity(levelled, linear.weight)
    torch.testing.assert_close(direction, torch.ones(4))


def test_tau_keeps_a_zero_prototype_finite():
    linear = LinearHead(6, 4, bias=False)
    linear.weight.data[1] = 0
    logits = TauNormHead.from_linear(linear)(torch.randn(5, 6))
    assert (logits[:, 1] == 0).all()
    assert logits.isfinite().all()


def test_lws_trains_the_scales_alone():
    linear = LinearHead(6, 4, bias=True)
    head = LWSHead.from_linear(linear)
    assert {k for k, p in head.named_parameters() if p.requires_grad} == {"class_scale"}
    optimizer = torch.optim.SGD((p for p in head.parameters() if p.requires_grad), lr=1.0)
    head.loss(torch.randn(5, 6), torch.arange(5) % 4).backward()
    optimizer.step()
    assert (head.class_scale != 1).all()
    assert torch.equal(head.weight, linear.weight)
    scaled = head.class_weight(torch.float32)
    direction = nn.functional.cosine_similarity(scaled, linear.weight)
    torch.testing.assert_close(direction, torch.ones(4))

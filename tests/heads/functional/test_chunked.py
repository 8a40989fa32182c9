"""The closed form beside autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wcdas.heads.functional import chunked, plain


def inputs_of(batch, classes, features=7, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, w, w_rho = normal(batch, features), normal(classes, features), 2 * normal(classes)
    scale = torch.tensor(20.0, dtype=torch.float64)
    log_prior = normal(classes).log_softmax(0)
    labels = torch.randint(classes, (batch,), generator=generator)
    return [t.requires_grad_() for t in (x, w, w_rho, scale, log_prior)], labels


@pytest.mark.parametrize("kept", [True, False])
@settings(max_examples=40)
@given(
    batch=st.integers(1, 12),
    classes=st.integers(2, 40),
    chunk=st.integers(1, 200),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    prior=st.booleans(),
    seed=st.integers(0, 100),
)
def test_equals_autograd(kept, batch, classes, chunk, smoothing, prior, seed):
    (x, w, w_rho, scale, log_prior), labels = inputs_of(batch, classes, seed=seed)
    inputs = (x, w, w_rho, scale) + ((log_prior,) if prior else ())
    options = (smoothing, log_prior if prior else None)
    grad = torch.linspace(-1, 2, batch, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "CHUNK", chunk)
        patch.setattr(chunked, "KEPT", 2**26 if kept else 0)
        ours = chunked.wcdas_losses(x, w, w_rho, scale, labels, *options)
        gradients = torch.autograd.grad(ours, inputs, grad)
    expected = plain.wcdas_losses(x, w, w_rho, scale, labels, *options)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, inputs, grad), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_passes_gradcheck():
    (x, w, w_rho, scale, log_prior), labels = inputs_of(4, 9)
    assert torch.autograd.gradcheck(
        lambda *t: chunked.wcdas_losses(*t[:4], labels, 0.1, t[4]), (x, w, w_rho, scale, log_prior)
    )


def test_keeps_one_matrix_or_none(monkeypatch):
    (x, w, w_rho, scale, _), labels = inputs_of(8, 5_000)

    def saved_elements():
        count = 0

        def pack(tensor):
            nonlocal count
            count += tensor.numel() if tensor.shape == (8, 5_000) else 0
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            chunked.wcdas_losses(x, w, w_rho, scale, labels)
        return count

    assert saved_elements() == 8 * 5_000
    monkeypatch.setattr(chunked, "KEPT", 0)
    assert saved_elements() == 0


def test_second_derivatives_are_refused_with_the_remedy():
    (x, w, w_rho, scale, _), labels = inputs_of(4, 9)
    loss = chunked.wcdas_losses(x, w, w_rho, scale, labels).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"cross_entropy\(head\(features\), labels\)"):
        torch.autograd.grad(first.sum(), x)

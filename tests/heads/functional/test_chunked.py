"""The closed form beside autograd."""

import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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
        patch.setattr(chunked, "CPU_CHUNK", chunk)
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
            count += tensor.numel() if tensor.shape == (5_000, 8) else 0
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


NAMES = ("x", "w", "w_rho", "scale", "log_prior")


@pytest.mark.parametrize("frozen", [*NAMES, ("x", "log_prior"), ("w", "w_rho", "scale"), NAMES[1:]])
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(frozen):
    inputs, labels = inputs_of(6, 11)
    trained = [t for name, t in zip(NAMES, inputs, strict=True) if name not in frozen]
    for tensor in inputs:
        tensor.requires_grad_(any(tensor is t for t in trained))
    gradients = []
    for kernel in (plain, chunked):
        loss = kernel.wcdas_losses(*inputs[:4], labels, 0.1, inputs[4]).sum()
        gradients.append(torch.autograd.grad(loss, trained))
    for expected, ours in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected)


class Watch(TorchDispatchMode):
    """Counts matrix products, and the bytes of new tensors that are alive together, at most."""

    def __init__(self):
        super().__init__()
        self.products = self.alive = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.known |= {storage._cdata for storage in storages((args, kwargs))}
        result = function(*args, **(kwargs or {}))
        self.products += function is torch.ops.aten.mm.default
        for storage in storages(result):
            if storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.alive += storage.nbytes()
                weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.alive)
        return result

    def gone(self, storage, size):
        self.known.discard(storage)
        self.alive -= size


def storages(values):
    return [t.untyped_storage() for t in tree_leaves(values) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_memory_is_that_of_the_gradient_and_of_what_is_kept(kept, smoothing, monkeypatch):
    """Chunks and vectors of a number for each class are the tenth on top."""
    monkeypatch.setattr(chunked, "CPU_CHUNK", 2**12)
    monkeypatch.setattr(chunked, "KEPT", 2**26 if kept else 0)
    (x, w, w_rho, scale, log_prior), labels = inputs_of(16, 5_000, features=256)
    with Watch() as watch:
        chunked.wcdas_losses(x, w, w_rho, scale, labels, smoothing, log_prior).sum().backward()
    assert watch.alive < 1.02 * w.nbytes  # the gradients
    assert watch.peak < 1.1 * (w.nbytes + kept * 16 * 5_000 * 8)


@pytest.mark.parametrize(("frozen", "products"), [((), 3), ((0,), 2), ((1, 2, 3), 2)])
def test_no_product_that_nobody_asked_for(frozen, products):
    (*inputs, log_prior), labels = inputs_of(8, 3_000)
    for i in frozen:
        inputs[i].requires_grad_(False)
    with Watch() as watch:
        chunked.wcdas_losses(*inputs, labels, 0.0, log_prior).sum().backward()
    assert watch.products == products


@pytest.mark.parametrize("apart", [0, 1, 2, 3, 4, 5])
def test_vmap_over_any_of_the_inputs(apart):
    inputs, labels = inputs_of(3, 9)
    inputs = [t.detach() for t in inputs]
    inputs.insert(4, labels)
    others = [t.flip(0) if t.dim() else t + 1 for t in inputs]
    several = [
        torch.stack([t, o, t]) if i == apart else t
        for i, (t, o) in enumerate(zip(inputs, others, strict=True))
    ]

    def loss(x, w, w_rho, scale, labels, log_prior):
        return chunked.wcdas_losses(x, w, w_rho, scale, labels, 0.1, log_prior).sum()

    gradients = torch.func.grad(loss, (0, 1, 2, 3, 5))
    dims = tuple(0 if i == apart else None for i in range(6))
    together = torch.func.vmap(gradients, dims)(*several)
    others = [o if i == apart else t for i, (t, o) in enumerate(zip(inputs, others, strict=True))]
    for ours, first, second in zip(together, gradients(*inputs), gradients(*others), strict=True):
        torch.testing.assert_close(ours, torch.stack([first, second, first]))


def test_a_jacobian():
    (x, w, w_rho, scale, _), labels = inputs_of(4, 9)

    def losses(kernel):
        return torch.func.jacrev(lambda x: kernel.wcdas_losses(x, w, w_rho, scale, labels))(x)

    torch.testing.assert_close(losses(chunked), losses(plain))


def test_parts_of_classes_make_the_whole(monkeypatch):
    """A label of −1 is a class of another part."""
    monkeypatch.setattr(chunked, "CPU_CHUNK", 12)
    (x, w, w_rho, scale, log_prior), labels = inputs_of(6, 11)
    found = []
    for classes in (slice(0, 4), slice(4, 11)):
        own = labels - classes.start
        own = torch.where((own >= 0) & (own < len(w[classes])), own, -1)
        own_prior = log_prior[classes]
        found.append(chunked.of_classes(x, w[classes], w_rho[classes], scale, own, own_prior, True))
    negatives, target, total = map(torch.stack, zip(*found, strict=True))
    parts = plain.Parts(negatives.logsumexp(0), target.sum(0), total.sum(0))
    expected = plain.wcdas_losses(x, w, w_rho, scale, labels, 0.1, log_prior)
    ours = parts.losses(11, 0.1)
    torch.testing.assert_close(ours, expected)
    inputs = (x, w, w_rho, scale, log_prior)
    gradients = [torch.autograd.grad(losses.sum(), inputs) for losses in (ours, expected)]
    torch.testing.assert_close(*gradients)


def test_compiles_in_several_chunks(monkeypatch):
    monkeypatch.setattr(chunked, "CPU_CHUNK", 20)
    (x, w, w_rho, scale, log_prior), labels = inputs_of(4, 13)
    inputs = (x, w, w_rho, scale, log_prior)
    torch._dynamo.reset()
    compiled = torch.compile(chunked.wcdas_losses, fullgraph=True, backend="aot_eager")
    gradients = []
    for losses in (compiled, chunked.wcdas_losses):
        loss = losses(x, w, w_rho, scale, labels, 0.1, log_prior).sum()
        gradients.append(torch.autograd.grad(loss, inputs))
    torch.testing.assert_close(*gradients)

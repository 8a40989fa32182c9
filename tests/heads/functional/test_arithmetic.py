from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from wcdas.heads.functional.arithmetic import (
    _is_tf32,
    _matmul_ieee,
    full_precision,
    matmul,
    unit,
    without_autocast,
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision_is_raised_to_float32(dtype):
    assert full_precision(torch.ones(2, dtype=dtype)).dtype == torch.float32


def test_float64_stays():
    assert full_precision(torch.ones(2, dtype=torch.float64)).dtype == torch.float64


def test_autocast_is_off_inside():
    a = torch.randn(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        with without_autocast(a):
            assert (a @ a).dtype == torch.float32


def test_meta_tensors_pass():
    with without_autocast(torch.empty(2, device="meta")):
        pass


def test_the_operator_is_registered_whole():
    """Derivatives, batching and shape inference of the operator that keeps TF32 out."""
    a = torch.randn(4, 3, requires_grad=True)
    b = torch.randn(3, 5, requires_grad=True)
    torch.library.opcheck(_matmul_ieee, (a, b))
    batched = torch.func.vmap(_matmul_ieee, (0, None))(torch.randn(2, 4, 3), b)
    assert batched.shape == (2, 4, 5)
    x, y = a.double().detach().requires_grad_(), b.double().detach().requires_grad_()
    assert torch.autograd.gradcheck(_matmul_ieee, (x, y))


def by_the_old_interface(wanted):
    torch.backends.cuda.matmul.allow_tf32 = wanted


def by_the_new_interface(wanted):
    torch.backends.cuda.matmul.fp32_precision = "tf32" if wanted else "none"


def by_a_word(wanted):
    torch.set_float32_matmul_precision("high" if wanted else "highest")


INTERFACES = [by_the_old_interface, by_the_new_interface, by_a_word]


@pytest.fixture(params=INTERFACES)
def switch(request):
    """Turns TF32 on or off."""
    yield request.param
    request.param(False)
    torch.backends.cuda.matmul.allow_tf32 = False


def test_tf32_is_noticed_whoever_turned_it_on_and_stays_as_it_was(switch):
    assert not _is_tf32()
    switch(True)
    assert _is_tf32()
    a, b, seen = torch.randn(4, 3), torch.randn(3, 5), []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.mm.default:
                seen.append(_is_tf32())
            return function(*args, **(kwargs or {}))

    with Watched():  # the operator itself hides what it calls
        product = _matmul_ieee._init_fn(a, b)
    assert seen == [False]
    assert _is_tf32()
    torch.testing.assert_close(product, a @ b)


def test_threads_leave_the_switch_as_it_was(switch):
    switch(True)
    a, b = torch.randn(40, 30), torch.randn(30, 50)
    with ThreadPoolExecutor(8) as pool:
        products = list(pool.map(lambda _: _matmul_ieee(a, b), range(200)))
    assert all(product.equal(products[0]) for product in products)
    assert _is_tf32()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
def test_tf32_stays_out_of_the_product_and_its_gradient(compiled, switch):
    a = torch.randn(256, 512, device="cuda", requires_grad=True)
    b = torch.randn(512, 256, device="cuda")
    exact = (a.double() @ b.double()).float()
    exact_gradient = (torch.ones(256, 256, device="cuda").double() @ b.double().mT).float()
    switch(True)
    rough = a @ b
    product = (torch.compile(matmul) if compiled else matmul)(a, b)
    (gradient,) = torch.autograd.grad(product.sum(), a)
    assert _is_tf32()
    switch(False)
    assert (rough - exact).norm() > 1e-4 * exact.norm()
    assert (product - exact).norm() < 1e-6 * exact.norm()
    assert (gradient - exact_gradient).norm() < 1e-6 * exact_gradient.norm()


def test_direction_and_length():
    vectors = torch.randn(5, 3)
    direction, norm = unit(vectors)
    torch.testing.assert_close(direction, torch.nn.functional.normalize(vectors))
    torch.testing.assert_close(norm, vectors.norm(dim=1))


def test_a_zero_vector_stays_zero_with_zero_gradient():
    vectors = torch.zeros(2, 3, requires_grad=True)
    direction, norm = unit(vectors)
    (gradient,) = torch.autograd.grad(direction.sum() + norm.sum(), vectors)
    assert torch.equal(direction, torch.zeros(2, 3))
    assert torch.equal(gradient, torch.zeros(2, 3))


def test_derivatives_of_a_direction():
    vectors = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(unit, vectors)
    assert gradgradcheck(unit, vectors)

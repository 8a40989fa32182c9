"""The arithmetic of heads: full precision, products that keep it, and directions of vectors.

Heads compute in float32, in float64 for float64 features, whatever autocast says.

Angles stay clear of TF32 too; a linear head leaves that to the user, as `nn.Linear` does.
"""

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def without_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    if tensor.is_meta:  # knows no autocast
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for matrices, never in TF32: cos θ near 1 needs every bit of its mantissa."""
    if not a.is_cuda or a.dtype != torch.float32 or torch.compiler.is_exporting():
        return a @ b
    # What is compiled cannot ask; its product asks when it runs.
    return _matmul_ieee(a, b) if torch.compiler.is_compiling() or _is_tf32() else a @ b


def _is_tf32() -> bool:
    """Whether products are in TF32, whichever of PyTorch's interfaces said so."""
    return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


_ONE_AT_A_TIME = threading.Lock()  # the switch is the process's


# An operator of its own, so that the backward pass and compiled code keep the precision too.
@torch.library.custom_op("wcdas::matmul_ieee", mutates_args=())
def _matmul_ieee(a: Tensor, b: Tensor) -> Tensor:
    with _ONE_AT_A_TIME:
        if not _is_tf32():
            return a @ b
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        try:
            return a @ b
        finally:
            torch.backends.cuda.matmul.fp32_precision = "tf32"


@_matmul_ieee.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    a, b = ctx.saved_tensors
    return matmul(grad, b.mT), matmul(a.mT, grad)


_matmul_ieee.register_autograd(_backward, setup_context=_save)


@_matmul_ieee.register_vmap
def _(info: Any, dims: tuple[int | None, ...], *matrices: Tensor) -> tuple[Tensor, int]:
    a, b = (m if d is None else m.movedim(d, 0) for m, d in zip(matrices, dims, strict=True))
    return matmul(a, b), 0


def unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """v / ‖v‖ and ‖v‖ along the last dimension; a zero vector stays zero, and so does its gradient.

    `torch.nn.functional.normalize` would give a zero vector a gradient of 1/eps.
    """
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    zero = norm == 0
    direction = vectors.masked_fill(zero, 0) / norm.masked_fill(zero, 1)
    return direction, norm.squeeze(-1)


def inverse(norm: Tensor) -> Tensor:
    """1 / ‖v‖, and 0 for a zero vector."""
    return torch.where(norm == 0, 0, 1 / norm)

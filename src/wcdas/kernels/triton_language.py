"""Triton, or where it is not installed just enough that files with kernels can be imported."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ImportError:
    AVAILABLE = INTERPRETED = False
    tl = SimpleNamespace(constexpr=lambda value: value)
    jit: Callable[[Any], Any] = lambda function: function  # noqa: E731
else:
    AVAILABLE = True
    INTERPRETED = bool(triton.knobs.runtime.interpret)
    jit = triton.jit

__all__ = ["AVAILABLE", "INTERPRETED", "jit", "precision", "product", "tl"]

# The interpreter multiplies the bits of a bfloat16, so there it has to be widened before.
WIDENED = tl.constexpr(INTERPRETED)


def precision(dtype: torch.dtype) -> str:
    """How factors of float32 are rounded: to TF32 if torch's switch for convolutions says so.

    If not, a product is made of three in TF32, which is as good as float32 within a few 10⁻⁷.
    """
    if dtype != torch.float32:
        return "ieee"
    switch: Any = torch.backends.cudnn
    return "tf32" if switch.conv.fp32_precision == "tf32" else "tf32x3"


@jit
def product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """total + a·b, accumulated in float32."""
    if WIDENED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)

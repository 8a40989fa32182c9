"""Triton, or where it is not installed just enough that files with kernels can be imported."""

from typing import Any

import torch

triton: Any
tl: Any
try:
    import triton
    import triton.language as tl
except ImportError:

    class triton:  # type: ignore[no-redef]
        jit = staticmethod(lambda function: function)

    class tl:  # type: ignore[no-redef]
        constexpr = staticmethod(lambda value: value)

    AVAILABLE = INTERPRETED = False
else:
    AVAILABLE = True
    INTERPRETED = bool(triton.knobs.runtime.interpret)

# The interpreter multiplies the bits of a bfloat16, so there it has to be widened before.
WIDENED = tl.constexpr(INTERPRETED)


def precision(dtype: torch.dtype) -> str:
    """How products of float32 are rounded: as `nn.Conv2d` would, after torch's own switch."""
    if dtype != torch.float32 or torch.backends.cudnn.conv.fp32_precision == "ieee":
        return "ieee"
    return "tf32"


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """total + a·b, accumulated in float32."""
    if WIDENED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)

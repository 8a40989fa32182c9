"""The kernels of the fused engine compile for GPUs that are not there, and fit on them."""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from wcdas.heads.functional import fused

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")

TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
}
STACK = 256  # bytes of registers that a thread may put aside, where a prior and smoothing add to it
SHARED, REGISTERS = 227 * 2**10, 2**16  # of a multiprocessor
BATCH, SIZE, CLASSES = 300, 512, 1000


class Launches:
    """Stands for a kernel: keeps what it is launched with, and launches nothing."""

    def __init__(self, kernel, found):
        self.kernel, self.found = kernel, found

    def __getitem__(self, grid):
        def launch(*given, **named):
            names = self.kernel.arg_names
            self.found.append((self.kernel, dict(zip(names, given, strict=False)) | named))

        return launch


def launches(exact, options):
    """What a loss and its gradients launch, a kernel with its arguments."""
    from wcdas.heads.functional import fused_kernels

    found, vector = [], torch.ones(CLASSES)
    log_prior, by_total = (vector, torch.ones(BATCH)) if options else (None, None)
    given = (torch.ones(BATCH, SIZE), torch.ones(CLASSES, SIZE), vector, vector, vector)
    given = (*given, torch.zeros(BATCH, dtype=torch.int64), log_prior)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("split", "negatives", "slopes", "finish"):
            patch.setattr(fused_kernels, name, Launches(getattr(fused_kernels, name), found))
        lse, _ = fused.negatives(*given, options, exact)
        fused.slopes(*given, lse, torch.ones(BATCH), by_total, True, True, options, exact)
    return found


def compiled(kernel, arguments, capability):
    """The kernel as Triton would compile it for these arguments."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = {}, {}, {}
    for i, parameter in enumerate(kernel.params):
        value = arguments[parameter.name]
        whole = isinstance(value, int) and value % 16 == 0 and not parameter.do_not_specialize
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[(i,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{TYPES[value.dtype]}"
        elif isinstance(value, int):
            signature[parameter.name] = "i32"
        else:
            shape = ",".join(map(str, value.block_shape))
            signature[parameter.name] = f"tensordesc<{TYPES[value.base.dtype]}[{shape}]>"
        if isinstance(value, torch.Tensor) or (whole and not parameter.is_constexpr):
            attributes[(i,)] = [["tt.divisibility", 16]]
    options = ("num_warps", "num_stages", "maxnreg")
    return triton.compile(
        ASTSource(kernel, signature, constants, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={name: arguments[name] for name in options if arguments.get(name)},
    )


def tool(name):
    import triton

    path = Path(triton.__file__).parent / "backends/nvidia/bin" / name
    return path if os.access(path, os.X_OK) else None


def resources(cubin, path):
    """Registers and bytes of stack of a thread, and its instructions."""
    path.write_bytes(cubin)
    usage, code = (
        subprocess.run(
            [tool("cuobjdump"), option, path], capture_output=True, text=True, check=True
        ).stdout
        for option in ("-res-usage", "--dump-sass")
    )
    (found,) = re.findall(r"REG:(\d+) STACK:(\d+)", usage)
    return *map(int, found), code


@pytest.mark.parametrize(
    ("capability", "exact", "options"),
    [
        (90, False, False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(90, False, True), (90, True, False), (90, True, True), (80, True, False)]
        ),
    ],
)
def test_kernels_compile_and_fit(capability, exact, options, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    if tool("ptxas") is None or tool("cuobjdump") is None:
        pytest.skip("needs ptxas and cuobjdump")
    found = launches(exact, options)
    names = [kernel.__name__ for kernel, _ in found]
    assert names == ["split", "split", "negatives", "split", "split", "slopes", "finish"]
    for kernel, arguments in found:
        done = compiled(kernel, arguments, capability)
        registers, stack, code = resources(done.asm["cubin"], tmp_path / "kernel.cubin")
        assert stack <= STACK
        if kernel.__name__ not in ("negatives", "slopes"):
            continue
        assert done.metadata.shared <= SHARED
        if capability == 90:
            assert "HGMMA" in code  # the tensor cores of this GPU,
            assert "UTMALDG" in code  # and what feeds them
        if not exact and not options:  # two programs on a multiprocessor
            threads = 32 * done.metadata.num_warps
            assert 2 * (done.metadata.shared + 1024) <= SHARED + 1024
            assert 2 * threads * registers <= REGISTERS

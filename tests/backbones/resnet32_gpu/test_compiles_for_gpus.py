"""All kernels of a ResNet-32 compile for GPUs that are not there, and fit on them."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from wcdas.backbones.resnet32_gpu.kernel import SOURCE, binaries
from wcdas.backbones.resnet32_gpu.network import plan_for
from wcdas.backbones.resnet32_gpu.plan import (
    ACTIVATION,
    COPIES,
    NORMALISED,
    PLAIN,
    RELU_NORM,
    SHARED_BYTES,
)
from wcdas.backbones.resnets import ResNet32

STACK = 64  # bytes of registers that a thread may put aside


def nvrtc_is_here():
    from torch.cuda._utils import _get_gpu_rtc_library

    try:
        return torch.version.cuda is not None and bool(_get_gpu_rtc_library())
    except OSError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not nvrtc_is_here(), reason="needs NVRTC"),
]


def cuobjdump():
    """CUDA's, or the one in Triton's package."""
    found = shutil.which("cuobjdump")
    triton = find_spec("triton")
    if found is None and triton is not None and triton.origin is not None:
        own = Path(triton.origin).parent / "backends/nvidia/bin/cuobjdump"
        found = own if os.access(own, os.X_OK) else None
    return found


@pytest.fixture(scope="module")
def plan():
    return plan_for(ResNet32(), torch.zeros(2, 3, 32, 32))


@pytest.fixture(scope="module", params=["90", "80"])
def files(request, plan, tmp_path_factory):
    """Files with the kernels for this compute capability, by name, in a cache of their own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        given = plan.kernels, tuple(map(int, request.param))
        first = binaries(*given)
        patch.setattr("torch.cuda._utils._nvrtc_compile", None)  # the second time it is on disk
        assert binaries(*given) == first
    files = {name: folder / f"{name}.cubin" for name in first}
    for name, file in files.items():
        file.write_bytes(first[name])
    return files


def kernels_of(layer):
    yield from (layer.forward(load) for load in (PLAIN, RELU_NORM))
    yield from (layer.weight_gradient(load) for load in (PLAIN, RELU_NORM))
    if layer.in_channels >= 16:
        yield from (layer.input_gradient(store) for store in (NORMALISED, ACTIVATION))
    yield from (layer.weight_sum, layer.end(None), layer.end(layer), layer.backward_start)


def test_every_kernel_compiles(files, plan):
    assert files.keys() == {kernel.name for kernel in plan.kernels}
    assert all(name.encode() in file.read_bytes() for name, file in files.items())


def test_registers_and_shared_memory(files, plan):
    tool = cuobjdump()
    if tool is None:
        pytest.skip("needs cuobjdump")
    pattern = r"Function (\w+):\s+REG:\d+ STACK:(\d+) SHARED:(\d+)"
    usage = {}
    for file in files.values():
        command = [tool, "-res-usage", file]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for name, stack, shared in re.findall(pattern, done.stdout):
            usage[name] = int(stack), int(shared)
    assert usage.keys() == {kernel.name for kernel in plan.kernels}
    spilled = {name: stack for name, (stack, _) in usage.items() if stack > STACK}
    assert not spilled
    for layer in plan.layers:
        taken = [usage[kernel.name][1] for kernel in kernels_of(layer) if kernel.name in usage]
        assert max(taken) <= layer.shared_bytes <= SHARED_BYTES


def test_the_plan_says_the_numbers_of_the_source():
    text = SOURCE.read_text()
    for line in ("PLAIN = 0, RELU_NORM = 1", "MEASURED = 0, NORMALISED = 1, ACTIVATION = 2"):
        assert line in text
    assert (PLAIN, RELU_NORM, NORMALISED, ACTIVATION) == (0, 1, 1, 2)
    assert f"COPIES = {COPIES};" in text

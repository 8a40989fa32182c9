"""The kernels of `wcdas.kernels` on a GPU, or as functions of this CPU through `emulation.h`."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from wcdas.backbones.resnet32_gpu.kernel import kernels_on, source_of

COMPILER = shutil.which("g++")


@pytest.fixture(scope="session")
def device():
    if not torch.cuda.is_available() and COMPILER is None:
        pytest.skip("needs a GPU or g++")
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session")
def kernels_of(device, tmp_path_factory):
    """Compiles a set of kernels once: `kernels_of(kernels).launch`."""
    emulated = {}

    def make(kernels):
        if device.type == "cuda":
            return kernels_on(device, kernels)
        key = frozenset(kernels)
        if key not in emulated:
            emulated[key] = EmulatedKernels(key, tmp_path_factory.mktemp("kernels"))
        return emulated[key]

    return make


@pytest.fixture(autouse=True)
def _exact(exact_products):
    pass


class EmulatedKernels:
    """Stands in for `wcdas.backbones.resnet32_gpu.kernel.Kernels`."""

    def __init__(self, kernels, folder):
        source = Path(folder) / "kernels.cpp"
        header = Path(__file__).with_name("emulation.h").read_text()
        lines = sorted(f"EMULATE({kernel.name})" for kernel in set(kernels))
        source.write_text("\n".join([header, source_of(kernels), *lines, ""]))
        library = source.with_suffix(".so")
        # The fibers jump from stack to stack, which a fortified longjmp refuses.
        options = ["-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-U_FORTIFY_SOURCE"]
        subprocess.run([COMPILER, *options, source, "-o", library], check=True)
        self.library = ctypes.CDLL(str(library))

    def launch(self, kernel, grid, *arguments):
        values = [self._c_value(argument) for argument in arguments]
        pointers = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        given = (ctypes.c_void_p * len(values))(*pointers)
        getattr(self.library, f"run_{kernel.name}")(*grid, given)

    @staticmethod
    def _c_value(argument):
        if isinstance(argument, torch.Tensor):
            assert argument.is_contiguous()
            return ctypes.c_void_p(argument.data_ptr())
        return ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_double(argument)

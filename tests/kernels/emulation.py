"""The kernels of `wcdas.kernels` as functions of this CPU, by the C++ compiler and `emulation.h`."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import torch

from wcdas.kernels.kernel import source_of

COMPILER = shutil.which("g++")


class EmulatedKernels:
    """Stands in for `wcdas.kernels.kernel.Kernels`."""

    def __init__(self, kernels, folder):
        source = Path(folder) / "kernels.cpp"
        names = sorted({kernel.name for kernel in kernels})
        header = Path(__file__).with_name("emulation.h").read_text()
        lines = [f"EMULATE({name})" for name in names]
        source.write_text("\n".join([header, source_of(kernels), *lines, ""]))
        library = source.with_suffix(".so")
        command = [COMPILER, "-std=c++20", "-O1", "-w", "-fPIC", "-shared", source, "-o", library]
        subprocess.run(command, check=True)
        self.library = ctypes.CDLL(str(library))

    def launch(self, kernel, grid, *arguments):
        kept = [self._c_value(argument) for argument in arguments]
        pointers = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in kept]
        given = (ctypes.c_void_p * len(kept))(*pointers)
        getattr(self.library, f"run_{kernel.name}")(*grid, given)

    @staticmethod
    def _c_value(argument):
        if isinstance(argument, torch.Tensor):
            assert argument.is_contiguous() or argument.dim() <= 2
            return ctypes.c_void_p(argument.data_ptr())
        return ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_double(argument)

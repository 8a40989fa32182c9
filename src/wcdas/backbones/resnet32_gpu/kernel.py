"""CUDA kernels compiled when they are first needed, and kept on disk for the next start.

The source is `residual.cu`. A kernel is one of its templates with numbers filled in, and becomes a
binary of its own: a compiler works on one after the other, but several compile side by side.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

SOURCE = Path(__file__).with_name("residual.cu")
THREADS = 128


@dataclass(frozen=True)
class Kernel:
    """A template of the source, by its name there, with its numbers in their order."""

    template: str
    numbers: tuple[int, ...]

    @property
    def name(self) -> str:
        return "_".join([self.template, *map(str, self.numbers)])

    @property
    def line(self) -> str:
        """The macro that makes a kernel of the template."""
        return f"{self.template.upper()}({self.name}, {', '.join(map(str, self.numbers))})"


def source_of(kernels: Iterable[Kernel]) -> str:
    lines = sorted({kernel.line for kernel in kernels})
    return "\n".join([SOURCE.read_text(), *lines, ""])


class Kernels:
    """The kernels of a network on the current GPU."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        from torch.cuda._utils import _cuda_load_module

        self.functions: Any = {}
        for name, binary in binaries(kernels, torch.cuda.get_device_capability()).items():
            loaded: Any = _cuda_load_module(binary, [name])
            self.functions |= loaded

    def launch(self, kernel: Kernel, grid: tuple[int, int], *arguments: Any) -> None:
        block = (THREADS, 1, 1)
        self.functions[kernel.name](grid=(*grid, 1), block=block, args=list(arguments))


@cache
def kernels_on(device: torch.device, kernels: tuple[Kernel, ...]) -> Kernels:
    with torch.cuda.device(device):
        return Kernels(kernels)


def binaries(kernels: Iterable[Kernel], capability: tuple[int, int]) -> dict[str, bytes]:
    """Compile kernels for GPUs of a compute capability; their binaries by name."""
    by_name = {kernel.name: kernel for kernel in kernels}
    suited = "".join(map(str, capability))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        each = pool.map(lambda k: compiled(source_of([k]), k.name, suited), by_name.values())
        return dict(zip(by_name, each, strict=True))


def compiled(source: str, name: str, capability: str) -> bytes:
    """The binary of a source, from the cache if it is there; `name` is any kernel in it."""
    from torch.cuda._utils import _nvrtc_compile

    version = f"{torch.version.cuda} {capability}\n"
    path = cache_folder() / f"{hashlib.sha256((version + source).encode()).hexdigest()}.cubin"
    if (kept := _read(path)) is not None:
        return kept
    binary, _ = _nvrtc_compile(source, name, compute_capability=capability)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}")
        own.write_bytes(hashlib.sha256(binary).digest() + binary)
        own.replace(path)
    except OSError:  # nowhere to keep it: the next start compiles again
        pass
    return binary


def _read(path: Path) -> bytes | None:
    """A binary behind its own digest; None where there is none, or a damaged one."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    return kept[size:] if hashlib.sha256(kept[size:]).digest() == kept[:size] else None


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wcdas" / "kernels"

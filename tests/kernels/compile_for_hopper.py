"""Compile every kernel of a ResNet-32's step for an H200, without one.

    python tests/kernels/compile_for_hopper.py bf16    # or tf32, tf32x3

Prints the registers, the bytes they spill and the shared memory of each; fails if one needs more
shared memory than the smallest GPU it should run on has.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from wcdas.backbones.resnet32 import ResNet32
from wcdas.kernels import residual_network

SHARED = 99 * 1024
compiled = set()


class Hopper:
    """A driver as far as the compiler asks it."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def compile_only(kernel, grid):
    def launch(*arguments, **options):
        binary = kernel.run(*arguments, grid=grid, warmup=True, **options)
        if binary.hash not in compiled:
            compiled.add(binary.hash)
            report(kernel.__name__, grid, options, binary)

    return launch


def report(name, grid, options, binary):
    import triton

    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        command = [cuobjdump, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage).groups()
    channels = " → ".join(
        str(options[key]) for key in ("IN_CHANNELS", "CHANNELS", "OUT_CHANNELS") if key in options
    )
    print(f"{name:28}{channels:10} grid {grid!s:10} registers {registers:>4} spilled {stack:>5}"
          f" shared {binary.metadata.shared:>6}")  # fmt: skip
    assert binary.metadata.shared <= SHARED


def main(precision):
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    driver.set_active(Hopper())
    JITFunction.__getitem__ = compile_only
    residual_network.INTERPRETED = True  # lets tensors of the CPU through
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    network = ResNet32(blocks=2)
    residual_network.fuse(network)
    images = torch.zeros(256, 3, 32, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        feature_map = network.forward_map(images)
    feature_map.backward(torch.zeros_like(feature_map))


if __name__ == "__main__":
    main(sys.argv[1])

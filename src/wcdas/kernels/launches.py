"""How the kernels of the residual network are cut into programs: the one place to tune them.

A program takes a run of consecutive blocks of pixels. There are at most `programs` of them, since
each leaves a row of partial sums that a later kernel adds up; a GPU of 132 processors should have
a few programs each. The keys are the output channels of the convolution; for the input gradient
they are its input channels and its stride.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Launch:
    """The cut of one kernel.

    Args:
        block: pixels a program works on at once, a power of two.
        programs: at most this many along the pixels.
        warps: of a program.
        stages: of Triton's software pipeline.
        channels: of the output that a program of the weight gradient holds, a power of two.
    """

    block: int
    programs: int
    warps: int = 4
    stages: int = 2
    channels: int = 16

    def blocks(self, pixels: int) -> int:
        """Blocks of a program, so that all programs together cover the pixels."""
        return -(-pixels // (self.block * self.programs))

    def stages_for(self, dtype: torch.dtype) -> int:
        """Maps of float32 need the room of a pipeline for themselves."""
        return 1 if dtype == torch.float32 else self.stages

    def grid(self, pixels: int) -> int:
        return -(-pixels // (self.block * self.blocks(pixels)))


FORWARD = {16: Launch(128, 528), 32: Launch(128, 528), 64: Launch(64, 264)}
INPUT_GRADIENT = {
    (16, 1): Launch(128, 528),
    (32, 1): Launch(128, 528),
    (64, 1): Launch(64, 264),
    (16, 2): Launch(128, 528, stages=1),
    (32, 2): Launch(64, 528, stages=1),
    (64, 2): Launch(64, 264, stages=1),
}
WEIGHT_GRADIENT = {
    16: Launch(32, 528, warps=1, stages=1, channels=16),
    32: Launch(32, 132, channels=32),
    64: Launch(32, 64, channels=16),
}
RESIDUAL = {16: Launch(256, 528), 32: Launch(128, 528), 64: Launch(64, 528)}

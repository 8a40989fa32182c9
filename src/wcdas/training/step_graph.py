"""A step of training as one CUDA graph."""

from collections.abc import Callable

import torch

WARM_UP = 3  # steps before the capture: libraries choose their kernels, code is compiled


class StepGraph:
    """A function without arguments, run once a replay.

    Args:
        body: what is captured: device work alone, on tensors that stay where they are.
        undo: puts everything back that the steps before the capture have changed.
    """

    def __init__(self, body: Callable[[], None], undo: Callable[[], None]) -> None:
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                body()
            undo()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=stream):
            body()

    def __call__(self) -> None:
        self.graph.replay()

"""A step of training as one CUDA graph."""

import threading
from collections.abc import Callable

import torch

from wcdas.kernels.streams import own_stream
from wcdas.training.seeded import seeded

ONE_AT_A_TIME = threading.Lock()
WARM_UP = 3  # steps before the capture: libraries choose their kernels, code is compiled


class StepGraph:
    """A function without arguments, run once a replay.

    Args:
        body: what is captured: device work alone, on tensors that stay where they are.
        undo: puts everything back that a step before the capture has changed.
    """

    def __init__(self, body: Callable[[], None], undo: Callable[[], None]) -> None:
        with ONE_AT_A_TIME:
            self._capture(body, undo)

    def _capture(self, body: Callable[[], None], undo: Callable[[], None]) -> None:
        self.graph = torch.cuda.CUDAGraph()
        stream = own_stream("capture")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                body()
                undo()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        # Other threads may do as they like meanwhile.
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            body()

    def replay(self, seed: int) -> None:
        """Run the step; `seed` is that of all its random numbers."""
        with seeded(seed):
            self.graph.replay()

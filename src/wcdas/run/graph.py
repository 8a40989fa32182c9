"""A step of training as one CUDA graph."""

import copy
from collections.abc import Callable

import torch

from wcdas.rng import seeded
from wcdas.run.stage import StageTraining
from wcdas.streams import own_stream

WARM_UP = 3  # steps before the capture: libraries choose their kernels, code is compiled


def capture_step(stage: StageTraining, epoch: int, start: int) -> "StepGraph":
    """Capture the step of a stage, which is left as it was.

    Raises:
        RuntimeError: where no graph can hold the step.
    """
    before = copy.deepcopy(stage.state_dict())

    def undo() -> None:
        # A copy, since the optimizer goes on with the very tensors it is given.
        stage.load_state_dict(copy.deepcopy(before))
        stage.set_rate(0.0)
        stage.begin_epoch(epoch, start)

    undo()
    try:
        return StepGraph(stage.train_step, undo)
    except RuntimeError:
        undo()
        raise


class StepGraph:
    """A function without arguments, run once a replay.

    Its random numbers come from a sequence of its own, since graphs of several threads would else
    share the seed that lies on the device.

    Args:
        body: what is captured: device work alone, on tensors that stay where they are.
        undo: puts everything back that a step before the capture has changed.
    """

    def __init__(self, body: Callable[[], None], undo: Callable[[], None]) -> None:
        self.graph = torch.cuda.CUDAGraph()
        self.random = torch.Generator(torch.device("cuda", torch.cuda.current_device()))
        with seeded(0):  # nobody else may draw from PyTorch's own sequence meanwhile
            usual = torch.cuda.default_generators[torch.cuda.current_device()]
            before = usual.graphsafe_get_state()
            usual.graphsafe_set_state(self.random)
            try:
                self._capture(body, undo)
            finally:
                usual.graphsafe_set_state(before)

    def _capture(self, body: Callable[[], None], undo: Callable[[], None]) -> None:
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
        self.random.manual_seed(seed)
        self.graph.replay()

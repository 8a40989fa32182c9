"""Several runs at a time in this process, each in a thread and on a CUDA stream of its own.

A step is one CUDA graph, so a thread has little to do but to launch it; the GPU runs the graphs of
all streams side by side.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import torch

from wcdas.errors import InterruptedRunError
from wcdas.run.interrupt import Interrupt
from wcdas.streams import own_stream
from wcdas.sweeps.one_by_one import reason_of
from wcdas.sweeps.plan import SweepRun

POLL_SECONDS = 0.2


def in_threads(
    runs: Sequence[SweepRun], slots: int, train: Callable[[SweepRun, Interrupt], None]
) -> Generator[tuple[SweepRun, str | None], None, None]:
    """Each run as it ends, with the reason if it failed; Ctrl-C stops all at a checkpoint.

    Args:
        runs: in the order they are started.
        slots: how many at a time.
        train: does a run, until the interrupt is requested.
    """

    def work(run: SweepRun) -> str | None:
        stream = own_stream("run") if torch.cuda.is_available() else None
        with torch.cuda.stream(stream):  # None is the one there is
            return reason_of(lambda: train(run, interrupt))

    waiting = list(runs)
    with Interrupt() as interrupt, ThreadPoolExecutor(slots) as pool:
        at_work: dict[Future[str | None], SweepRun] = {}
        try:
            while waiting or at_work:
                while waiting and len(at_work) < slots and not interrupt.requested:
                    run = waiting.pop(0)
                    at_work[pool.submit(work, run)] = run
                ended, _ = wait(at_work, POLL_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    run = at_work.pop(future)
                    yield run, future.result()
                if interrupt.requested and not at_work:
                    raise InterruptedRunError
        finally:
            interrupt.requested = True  # whatever ended the sweep ends its runs

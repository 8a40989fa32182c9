"""How the runs of a sweep are done: one after the other, or side by side.

What does a run is a function `do(run, interrupt)`: it returns when the run is finished, raises what
the run fails of, and ends with InterruptedRunError when the interrupt is requested. A run trains in
this process, on a CUDA stream of its own, in a process of its own, or on another machine.
"""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import torch

from wcdas.data.dataset import Dataset, FeatureVectors, StoredImages
from wcdas.errors import InputError, InterruptedRunError, WorkError
from wcdas.interrupt import Interrupt
from wcdas.processes import choose_device, spare_cores
from wcdas.run.automatic import SMALL
from wcdas.streams import own_stream
from wcdas.sweeps.plan import SweepRun

POLL_SECONDS = 0.05
# Runs at a time on a GPU: more than 8 gain nothing, and would share PyTorch's 32 streams, of which
# each takes four.
AT_MOST, BYTES_OF_A_RUN = 8, 4 * 2**30

Do = Callable[[SweepRun, Interrupt], None]
Ended = Generator[tuple[SweepRun, str | None], None, None]  # a run, and why it failed if it did


class LostClusterError(WorkError):
    """What all runs need has gone, and none of them is to blame."""


def runs_at_a_time(parallel: int | None, runs: int, device: str, dataset: Dataset) -> int:
    """Return what was asked for, of threads that share a GPU `AT_MOST`; else as many as fit: one,
    but for small images on a GPU."""
    if parallel is not None:
        apart = parallel == 1 or in_processes(parallel, device, dataset)
        return parallel if apart else min(parallel, AT_MOST)
    small = not isinstance(dataset.train, StoredImages) and dataset.input_size <= SMALL
    chosen = choose_device(device)
    if not small or chosen.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(chosen)
    held = dataset.train.vectors.nbytes if isinstance(dataset.train, FeatureVectors) else 0
    return max(1, min(AT_MOST, runs, free // max(BYTES_OF_A_RUN, 2 * held)))


def shared_workers(workers: int | None, parallel: int) -> int:
    """Return how many processes decode images for a run; the runs at work share the cores."""
    return spare_cores() // parallel if workers is None else workers


def in_processes(parallel: int, device: str, dataset: Dataset) -> bool:
    """Whether the runs have processes of their own; a GPU that holds the data runs threads."""
    resident = not isinstance(dataset.train, StoredImages)
    return parallel > 1 and not (resident and choose_device(device).type == "cuda")


def one_by_one(runs: Sequence[SweepRun], do: Do) -> Ended:
    """Yield each run as it ends; Ctrl-C stops the one at work at a checkpoint."""
    interrupt = Interrupt()  # which a run in this thread listens to itself, while it trains
    for run in runs:
        yield run, _reason(do, run, interrupt)
        gc.collect()  # a model of a failed run may still be held by a cycle
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def side_by_side(runs: Sequence[SweepRun], at_a_time: int, do: Do) -> Ended:
    """Yield each run as it ends; Ctrl-C stops those at work at a checkpoint, a second at once.

    Args:
        runs: in the order they are started.
        at_a_time: how many, each in a thread.
        do: does a run.
    """
    with Interrupt() as interrupt, ThreadPoolExecutor(at_a_time) as pool:
        left = {pool.submit(_reason, do, run, interrupt): run for run in runs}
        try:
            while left:
                # A signal that comes just before a wait is heeded only after it.
                ended, _ = wait(left, POLL_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    yield left.pop(future), future.result()
        finally:
            interrupt.requested = True  # whatever ended the sweep ends its runs


def _reason(do: Do, run: SweepRun, interrupt: Interrupt) -> str | None:
    """Do a run and return why it failed, if it did."""
    if interrupt.requested:
        raise InterruptedRunError(number=interrupt.number)
    try:
        do(run, interrupt)
    except (InterruptedRunError, LostClusterError):
        raise
    except (InputError, WorkError) as error:
        return str(error)
    except Exception as error:  # a fault in one method must not cost the others
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None


def on_own_stream(do: Do) -> Do:
    """Return what does runs on a stream of the thread's own.

    A step is one CUDA graph, so a thread has little to do but to launch it; the GPU runs the
    graphs of all streams side by side.
    """

    if not torch.cuda.is_available():
        return do
    device = torch.cuda.current_device()  # of this thread; another one begins on the first GPU

    def done(run: SweepRun, interrupt: Interrupt) -> None:
        with torch.cuda.device(device), torch.cuda.stream(own_stream("run")):
            do(run, interrupt)

    return done


def train_command(
    device: str, workers: int, loggers: Sequence[str], report: bool, folder: Path
) -> list[str]:
    """Return the command that does a run whose folder says what it is."""
    options = ["--out", str(folder), "--resume", "--device", device, "--workers", str(workers)]
    options += ["--log", ",".join(loggers) or "none", *([] if report else ["--no-report"])]
    return [sys.executable, "-m", "wcdas", "train", *options]


def in_process(
    command: Sequence[str], threads: int, claim: int | None, interrupt: Interrupt
) -> None:
    """Do a run by a command in a process of its own.

    Args:
        command: the program and its arguments.
        threads: of the process.
        claim: the open descriptor that keeps other sweeps out of the folder; None where the process
            ends with this one.
        interrupt: stops the process at a checkpoint, or at once.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            # Ctrl-C reaches the parent alone, which passes it on once: a second would be too hasty.
            process_group=0,
            # The folder stays claimed by a child that outlives its parent.
            pass_fds=() if claim is None else (claim,),
        )
        while process.poll() is None and not interrupt.requested:
            time.sleep(POLL_SECONDS)
        process.terminate()  # a run takes it as Ctrl-C, and it is never ignored
        while process.poll() is None and not interrupt.at_once:
            time.sleep(POLL_SECONDS)
        process.kill()
        status = process.wait()
        said.seek(0)
        lines = said.read().decode(errors="replace").split("\n")
    if status == 0:
        return
    if interrupt.requested:
        raise InterruptedRunError(number=interrupt.number)
    if status < 0:
        often = "; often too little memory" if -status == signal.SIGKILL else ""
        raise WorkError(f"ended by signal {-status}{often}")
    told = [line.removeprefix("wcdas: ") for line in lines if line.startswith("wcdas: ")]
    raise WorkError(
        (told or [line for line in lines if line.strip()] or [f"exit status {status}"])[-1]
    )

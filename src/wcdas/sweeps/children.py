"""Several runs at a time, each `wcdas train … --resume` in a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from wcdas.errors import InterruptedRunError
from wcdas.run.interrupt import Interrupt
from wcdas.sweeps.plan import SweepRun

POLL_SECONDS = 0.05


class Child:
    """The process of one run, and what it says."""

    def __init__(self, command: Sequence[str], threads: int, claim: int) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            # Ctrl-C reaches the parent alone, which passes it on once: a second would be too hasty.
            process_group=0,
            # The folder stays claimed by a child that outlives its parent.
            pass_fds=(claim,),
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def reason(self) -> str | None:
        """Why it failed; waits for its end."""
        status = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        self._said.close()
        if status == 0:
            return None
        if status < 0:
            often = "; often too little memory" if -status == signal.SIGKILL else ""
            return f"ended by signal {-status}{often}"
        told = [line.removeprefix("wcdas: ") for line in lines if line.startswith("wcdas: ")]
        return (told or [line for line in lines if line.strip()] or [f"exit status {status}"])[-1]


def side_by_side(
    runs: Sequence[SweepRun],
    slots: int,
    command: Callable[[SweepRun], Sequence[str]],
    threads: int,
    claim: int,
) -> Generator[tuple[SweepRun, str | None], None, None]:
    """Each run as it ends, with the reason if it failed; Ctrl-C stops all at a checkpoint.

    Args:
        runs: in the order they are started.
        slots: how many at a time.
        command: the command of a run.
        threads: of each process.
        claim: the open descriptor that keeps other sweeps out of the folder.
    """
    waiting = list(runs)
    at_work: dict[SweepRun, Child] = {}
    try:
        with Interrupt() as interrupt:
            while (waiting or at_work) and not interrupt.requested:
                while waiting and len(at_work) < slots:
                    run = waiting.pop(0)
                    at_work[run] = Child(command(run), threads, claim)
                time.sleep(POLL_SECONDS)
                for run in [run for run, child in at_work.items() if child.ended]:
                    yield run, at_work.pop(run).reason()
            if interrupt.requested:
                _stop(at_work, signal.SIGTERM)  # a run takes it as Ctrl-C, and it is never ignored
                raise InterruptedRunError
    except KeyboardInterrupt:  # the second one
        _stop(at_work, signal.SIGKILL)
        raise
    finally:
        _stop(at_work, signal.SIGTERM)


def train_command(
    folder: Path, device: str, workers: int, loggers: Sequence[str], report: bool
) -> list[str]:
    """The command that does a run whose folder says what it is."""
    options = ["--out", str(folder), "--resume", "--device", device, "--workers", str(workers)]
    options += ["--log", ",".join(loggers) or "none"]
    options += [] if report else ["--no-report"]
    return [sys.executable, "-m", "wcdas.cli", "train", *options]


def _stop(at_work: dict[SweepRun, Child], number: signal.Signals) -> None:
    for child in at_work.values():
        child.stop(number)
    for child in at_work.values():
        child.reason()
    at_work.clear()

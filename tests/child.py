"""`wcdas …` in a process of its own, to which something happens after a certain step.

The step is named by the epochs logged before it, and its number in the epoch. There the process
may be killed ("kill"), killed while it writes its next file ("tear"), or wait until it is asked to
stop ("hold"). As a program: `python child.py hold 1 0 train …`.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

from wcdas import cli
from wcdas.run import stage_run
from wcdas.run.stage_run import StageRun


def end(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def let(what: str, epochs: int, step: int) -> None:
    """Let something happen after a step."""
    asked = StageRun._asked

    def reached(run: StageRun, at: int) -> tuple[bool, bool]:
        if (run.trainer.logged, at) == (epochs, step):
            if what == "kill":
                end()
            elif what == "tear":
                os.fsync = end
            while what == "hold" and not run.trainer.interrupt.requested:
                time.sleep(0.002)
        return asked(run, at)

    StageRun._asked = reached


def run(
    arguments: list[str],
    output: str,
    checkpoint_seconds: float,
    happens: tuple[str, int, int],
    environment: dict[str, str],
) -> None:
    """In a process that was forked: on one thread, what it says in a file."""
    os.environ |= environment
    torch.set_num_threads(1)
    stage_run.CHECKPOINT_SECONDS = checkpoint_seconds
    with Path(output).open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    let(*happens)
    sys.argv = ["wcdas", *arguments]
    cli.main()


if __name__ == "__main__":
    if "given" in globals():
        run(*globals()["given"])
    else:
        what, epochs, step, *arguments = sys.argv[1:]
        let(what, int(epochs), int(step))
        sys.argv = ["wcdas", *arguments]
        cli.main()

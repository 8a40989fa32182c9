"""`wcdas …` in a process of its own, to which something happens after a certain step.

The step is named by the epochs logged before it, and its number in the epoch. There the process
may be killed ("kill"), if it is the last of several and torchrun has not started them again ("kill
one"), killed while it writes its next file ("tear"), or wait until it is asked to stop ("hold"). It
may also wait where a function is called ("stay", "wcdas.api.finish"), or, as the last of two,
before it measures until it is asked to stop ("measure"), and says so; or call a function when there
is a file ("late", "wcdas.api.new_folder", "run/run.toml"). As a program:
`python child.py hold 1 0 train …`.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

from wcdas import cli
from wcdas.run import loop
from wcdas.run.loop import Loop
from wcdas.run.stage import StageTraining


def end(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stay(function: str) -> None:
    """Wait where a function is called, by the name that a module has for it."""
    module, _, name = function.rpartition(".")

    def never_done(*_: object, **__: object) -> NoReturn:
        os.write(1, b"stays here\n")
        while True:
            time.sleep(0.002)

    setattr(importlib.import_module(module), name, never_done)


def wait_for_a_file(function: str, file: str) -> None:
    """Before a function is called."""
    module, _, name = function.rpartition(".")
    found = importlib.import_module(module)
    called = getattr(found, name)

    def late(*given: Any) -> Any:
        while not Path(file).exists():
            time.sleep(0.002)
        return called(*given)

    setattr(found, name, late)


def measure_when_asked() -> None:
    measured = Loop._measured

    def held(self: Loop, *place: Any) -> Any:
        if os.environ["RANK"] == "1":
            os.write(1, b"stays here\n")
            while not self.interrupt.requested:
                time.sleep(0.002)
        return measured(self, *place)

    Loop._measured = held


def let(what: str, *where: Any) -> None:
    """Let something happen after a step, or in a function."""
    if what in ("stay", "late", "measure"):
        {"stay": stay, "late": wait_for_a_file, "measure": measure_when_asked}[what](*where)
        return
    epochs, step = where
    asked = Loop._asked

    def reached(self: Loop, stage: StageTraining, at: int) -> tuple[bool, bool]:
        if (self.epochs, at) == (epochs, step):
            first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
            last = os.environ.get("RANK") == str(int(os.environ.get("WORLD_SIZE", 1)) - 1)
            if what == "kill" or (what == "kill one" and first and last):
                end()
            elif what == "tear":
                os.fsync = end
            while what == "hold" and not self.interrupt.requested:
                time.sleep(0.002)
        return asked(self, stage, at)

    Loop._asked = reached


def run(
    arguments: list[str],
    output: str,
    checkpoint_seconds: float,
    happens: tuple[Any, ...],
    environment: dict[str, str],
) -> None:
    """In a process that was forked, a group of its own: on one thread, what it says in a file."""
    os.setpgid(0, 0)
    multiprocessing.set_start_method("fork", force=True)  # as it is in a process of its own
    os.environ |= environment
    torch.set_num_threads(1)
    loop.CHECKPOINT_SECONDS = checkpoint_seconds
    with Path(output).open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    let(*happens)
    sys.argv = ["wcdas", *arguments]
    try:
        cli.main()
    finally:
        threads = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
        assert "pt_gloo_runloop" not in threads, "a process group that has not ended"


if __name__ == "__main__":
    if "given" in globals():
        run(*globals()["given"])
    else:
        what, epochs, step, *arguments = sys.argv[1:]
        let(what, int(epochs), int(step))
        sys.argv = ["wcdas", *arguments]
        cli.main()

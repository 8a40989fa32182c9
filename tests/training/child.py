"""`wcdas` in a process of its own, on one thread: run by the tests through `runpy`."""

import os
import sys
from pathlib import Path

import torch

from wcdas import cli
from wcdas.training import stage_run


def run(arguments: list[str], output: str, checkpoint_seconds: float) -> None:
    torch.set_num_threads(1)
    stage_run.CHECKPOINT_SECONDS = checkpoint_seconds
    with Path(output).open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["wcdas", *arguments]
    cli.main()


if __name__ == "__main__":
    run(*globals()["given"])

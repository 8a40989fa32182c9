"""Lists of names, wrapped at a terminal's width."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

import wcdas
from wcdas.listing import KINDS, listing
from wcdas.paper.run import list_claims


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_wrapped_lines_fit_and_say_the_same(kind, width):
    lines = listing(kind, width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == " ".join(listing(kind)).split()
    assert sum(not line.startswith(" ") for line in lines) == len(listing(kind))


def test_wrapped_claims_fit_and_say_the_same():
    assert max(map(len, list_claims(80))) <= 80
    assert " ".join(list_claims(80)).split() == " ".join(list_claims()).split()


def test_a_method_says_what_it_is_and_where_it_is_from():
    (line,) = [line for line in listing("methods") if line.startswith("class-balanced ")]
    for part in ("inverse effective number", "Cui et al., 2019", "stages: ", "reported: CIFAR"):
        assert part in line
    assert not any("; —" in line for line in listing("methods"))


def terminal_lines(columns: int, *command: str) -> Iterator[str]:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=theirs, env=environment)
    os.close(theirs)
    closed = contextlib.suppress(OSError)  # how Linux says that the other side is
    with os.fdopen(ours, encoding="utf-8") as file, closed:
        yield from (line.rstrip("\n") for line in file)
    assert process.wait() == 0


def test_a_terminal_gets_wrapped_lines_and_a_pipe_whole_ones():
    command = (sys.executable, "-m", "wcdas.cli", "list", "methods")
    shown = [line for line in terminal_lines(70, *command) if line]
    assert shown == listing("methods", 70)
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert piped.splitlines() == listing("methods")
    assert len(piped.splitlines()) == len(wcdas.list_methods())

"""Lists of names, wrapped at a terminal's width."""

import contextlib
import os
import pty
import sys
import threading
from collections.abc import Callable

import pytest

import wcdas
from wcdas import cli, usage
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


def on_a_terminal(write: Callable[[], object], columns: int) -> list[str]:
    """The lines that a terminal shows."""
    ours, theirs = pty.openpty()
    seen: list[str] = []

    def read() -> None:
        closed = contextlib.suppress(OSError)  # how Linux says that the other side is
        with os.fdopen(ours, encoding="utf-8") as file, closed:
            seen.extend(line.rstrip("\n") for line in file)

    reader = threading.Thread(target=read)
    reader.start()
    with (
        pytest.MonkeyPatch.context() as patch,
        os.fdopen(theirs, "w", encoding="utf-8") as terminal,
    ):
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", terminal)
        write()
    reader.join()
    return [line for line in seen if line]


def test_a_terminal_gets_wrapped_lines_and_a_pipe_whole_ones(capsys):
    assert on_a_terminal(lambda: usage.run(cli.app, ["list", "methods"]), 70) == listing(
        "methods", 70
    )
    assert usage.run(cli.app, ["list", "methods"]) == 0
    piped = capsys.readouterr().out.splitlines()
    assert piped == listing("methods")
    assert len(piped) == len(wcdas.list_methods())

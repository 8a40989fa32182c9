"""What is shown of a stage: lines in a file, a bar on a terminal, nothing without a console."""

import io
import re

import pytest
from rich.console import Console

from wcdas.run.console import StageProgress


@pytest.fixture
def shown():
    """The text that a stage of 20 epochs shows on a console."""

    def run(**options):
        file = io.StringIO()
        console = Console(file=file, width=100, **options)
        with StageProgress(console, "1/2 representation", 20, 3, 0) as progress:
            for epoch in range(20):
                for _ in range(3):
                    progress.step(32)
                progress.epoch(epoch, 0.5, 0.25)
        return file.getvalue()

    return run


def test_ten_lines_in_a_file(shown):
    lines = shown().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("1/2 representation: epoch 2/20 · loss 0.500 · train 25.0 % · ")
    assert re.search(r"images/s · \d:\d\d:\d\d left$", lines[0])
    assert lines[-1].endswith(" images/s")  # nothing is left


def test_a_bar_on_a_terminal(shown):
    text = shown(force_terminal=True)
    assert "1/2 representation" in text
    assert "100%" in text
    assert "epoch 2/20" not in text


def test_the_bar_ends_with_an_error():
    console = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(KeyError), StageProgress(console, "1/1 one", 2, 1, 0):
        raise KeyError
    with StageProgress(console, "1/1 again", 2, 1, 0):  # two at a time would be refused
        pass
    with StageProgress(None, "1/1 silent", 1, 1, 0) as progress:
        progress.epoch(0, 0.5, None)

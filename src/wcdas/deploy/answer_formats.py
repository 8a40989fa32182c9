"""Answers as text, CSV and JSON lines.

Names of files and classes are other people's: whatever is in them, text stays one line and moves no
cursor, a CSV cell is no formula, and JSON is exact.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from wcdas.deploy.answers import DIGITS, Answer
from wcdas.errors import InputError, unknown

Write = Callable[[Answer], object]
# What makes a spreadsheet take a cell for a formula, also in its full-width form.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def text_writer(file: TextIO, top: int) -> Write:
    """A picture a line: its file, and the classes with their probabilities and groups."""
    return lambda answer: file.write(_line(answer) + "\n")


def csv_writer(file: TextIO, top: int) -> Write:
    """A picture a row; `answer` is empty where the model is unsure or the file unreadable."""
    table = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    ranks = range(1, top + 1)
    places = [f"{what}_{rank}" for rank in ranks for what in ("class", "probability", "group")]
    table.writerow(["file", "status", "answer", *places, "error"])

    def write(answer: Answer) -> None:
        cells = [
            cell
            for guess in answer.top
            for cell in (_cell(guess.name), f"{guess.probability:.{DIGITS}f}", guess.group)
        ]
        cells += [""] * (len(places) - len(cells))
        first = [_cell(answer.file), answer.status, _cell(answer.answer or "")]
        table.writerow([*first, *cells, _cell(answer.error or "")])

    return write


def jsonl_writer(file: TextIO, top: int) -> Write:
    """A picture a line, a JSON object each."""
    return lambda answer: file.write(json.dumps(answer.as_table()) + "\n")


FORMATS: dict[str, Callable[[TextIO, int], Write]] = {
    "text": text_writer,
    "csv": csv_writer,
    "jsonl": jsonl_writer,
}
SUFFIXES = {".txt": "text", ".csv": "csv", ".jsonl": "jsonl"}


def choose_format(given: str | None, out: Path | None) -> str:
    """The format asked for, or that of the output's name, or text."""
    if given is not None and given not in FORMATS:
        raise unknown("format", given, FORMATS)
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise InputError(f"the output is {out}; expected a name in .csv, .jsonl or .txt")
    return given or (SUFFIXES[out.suffix.lower()] if out else "text")


def printable(name: str) -> str:
    """The name on one line, with control characters written out as \\n, \\x1b and the like."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _line(answer: Answer) -> str:
    if answer.error is not None:
        return printable(f"{answer.file}: {answer.error}")
    guesses = ", ".join(
        f"{printable(guess.name)} {100 * guess.probability:.1f} % ({guess.group})"
        for guess in answer.top
    )
    return f"{printable(answer.file)}: {'unsure: ' if answer.unsure else ''}{guesses}"


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text

"""Predictions for many image files, in batches, with the bad ones reported and the rest done."""

import csv
import glob
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import Any, TextIO

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from wcdas.data.classes import natural
from wcdas.data.images import extensions
from wcdas.data.sources.folder import visible_files
from wcdas.deploy.answers import DIGITS, Answer, Answerer, check_wanted
from wcdas.deploy.model import Source, load
from wcdas.deploy.output import check_file
from wcdas.errors import InputError, WorkError, unknown
from wcdas.run.spec import LARGEST_BATCH

Named = str | os.PathLike[str]
Write = Callable[[Answer], object]


def predict_files(
    run: Source,
    pictures: Named | Iterable[Named],
    *,
    top: int = 3,
    prior: str | None = None,
    abstain: float | None = None,
    batch_size: int = 64,
    device: str = "auto",
) -> Iterator[Answer]:
    """The answers to image files, in order; one that cannot be read has an `error`.

    Args:
        run: a run's folder, or its model file.
        pictures: files, folders (with the folders in them) and patterns such as "photos/*.jpg".
        top: how many classes, the most probable first.
        prior: "uniform", "train" or a file: the class mix to predict for.
        abstain: the probability below which the answer is "unsure".
        batch_size: images at a time.
        device: auto, cpu, cuda or cuda:N.
    """
    named = [pictures] if isinstance(pictures, (str, os.PathLike)) else pictures
    return iter(Answers(run, named, top, prior, abstain, batch_size, device))


def write_predictions(
    run: Source,
    images: Iterable[Named],
    *,
    form: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> int:
    """Write `predict_files` as text, CSV or JSON lines to a file or to standard output.

    Returns the number of images; raises `WorkError` at the end if some could not be read.
    """
    form = choose_format(form, out)
    if out is not None:
        check_file(out, overwrite)
    answers = Answers(run, images, **options)
    unreadable, total = 0, len(answers.files)
    with _destination(out) as file, _progress(out) as progress:
        write = FORMATS[form](file, answers.answerer.top)
        for answer in progress.track(answers, total=total):
            write(answer)
            unreadable += answer.error is not None
        file.flush()
    if unreadable:
        lines = "their lines" if out is None else f"their lines in {out}"
        raise WorkError(f"{unreadable} of {total} images could not be read; see {lines}")
    return total


class Answers:
    """The answers of a model to image files; all that is asked for is checked before any work."""

    def __init__(
        self,
        run: Source,
        named: Iterable[Named],
        top: int = 3,
        prior: str | None = None,
        abstain: float | None = None,
        batch_size: int = 64,
        device: str = "auto",
    ) -> None:
        check_wanted(top, abstain)
        if not 1 <= batch_size <= LARGEST_BATCH:
            raise InputError(f"batch-size is {batch_size}; expected 1 to {LARGEST_BATCH}")
        model = load(run, device)  # first: a wrong run is not the fault of the images
        self.files, self.batch_size = find_images(named), batch_size
        self.answerer = Answerer(model, top, prior, abstain)

    def __iter__(self) -> Iterator[Answer]:
        starts = range(0, len(self.files), self.batch_size)
        batches = (self.files[at : at + self.batch_size] for at in starts)
        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        try:
            decode = self.answerer.decode
            decoded = ((batch, [pool.submit(decode, path) for path in batch]) for batch in batches)
            # In pairs, so that a batch is decoded while the model looks at the one before it.
            for (batch, futures), _ in pairwise(chain(decoded, [([], [])])):
                yield from self._answer(batch, futures)
        finally:
            pool.shutdown(cancel_futures=True)

    def _answer(self, batch: list[Path], decoded: list[Future[Tensor]]) -> Iterator[Answer]:
        errors = [future.exception() for future in decoded]
        readable = [not isinstance(error, InputError) for error in errors]
        inputs = [future.result() for future in compress(decoded, readable)]
        answers = self.answerer.answer(torch.stack(inputs)) if inputs else iter(())
        for path, error in zip(batch, errors, strict=True):
            if error is None:
                yield replace(next(answers), file=str(path))
            else:
                yield Answer(str(path), error=str(error))


def find_images(named: Iterable[Named]) -> list[Path]:
    """The files in the order named; those of a folder or a pattern in natural order.

    A folder stands for the images in it and in its folders, by their extensions and without
    hidden ones. A file is taken whatever it is called, also one that is not there: it is reported
    when it is read.
    """
    found = [path for name in named for path in _expanded(os.fspath(name))]
    if not found:
        raise InputError("no images are named; expected files, folders or patterns like '*.jpg'")
    if not any(path.exists() for path in found):
        others = f", nor do the {len(found) - 1} others named" if len(found) > 1 else ""
        raise InputError(f"{found[0]} does not exist{others}; expected an image or a folder")
    return found


def _expanded(name: str) -> Iterator[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        yield from _inside(path)
    elif path.exists() or not glob.has_magic(name):
        yield path
    else:
        matches = sorted(glob.glob(str(path), recursive=True), key=natural)
        if not matches:
            raise InputError(f"no file matches {name!r}; expected a pattern such as 'photos/*.jpg'")
        for match in map(Path, matches):
            if not match.is_dir():
                yield match
            elif "**" not in name:  # which names the files below itself
                yield from _inside(match)


def _inside(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}") from None

    files = visible_files(folder, refuse)
    found = [path for path in files if path.suffix.lower() in extensions()]
    if not found:
        raise InputError(f"the folder {folder} holds no images; expected files such as 1.jpg")
    return sorted(found, key=lambda path: natural(str(path)))


# Names of files and classes are other people's: whatever is in them, text stays one line and moves
# no cursor, a CSV cell is no formula, and JSON is exact.


def text_writer(file: TextIO, top: int) -> Write:
    """A line for an image: its file, and the classes with their probabilities and groups."""

    def line(answer: Answer) -> str:
        if answer.error is not None:
            return f"{answer.file}: {answer.error}"
        guesses = (f"{g.name} {100 * g.probability:.1f} % ({g.group})" for g in answer.top)
        return f"{answer.file}: {'unsure: ' if answer.unsure else ''}{', '.join(guesses)}"

    return lambda answer: file.write(printable(line(answer)) + "\n")


def csv_writer(file: TextIO, top: int) -> Write:
    """A row for an image; `answer` is empty where the model is unsure or the file unreadable."""
    table = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    ranks = range(1, top + 1)
    columns = [f"{what}_{rank}" for rank in ranks for what in ("class", "probability", "group")]
    table.writerow(["file", "status", "answer", *columns, "error"])

    def write(answer: Answer) -> None:
        cells = [answer.file, answer.status, answer.answer or ""]
        for guess in answer.top:
            cells += [guess.name, f"{guess.probability:.{DIGITS}f}", guess.group]
        cells += [""] * (3 + len(columns) - len(cells))
        cells.append(answer.error or "")
        table.writerow([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in cells])

    return write


def jsonl_writer(file: TextIO, top: int) -> Write:
    """A line for an image, a JSON object each."""
    return lambda answer: file.write(json.dumps(answer.as_table()) + "\n")


FORMATS: dict[str, Callable[[TextIO, int], Write]] = {
    "text": text_writer,
    "csv": csv_writer,
    "jsonl": jsonl_writer,
}
SUFFIXES = {".txt": "text", ".csv": "csv", ".jsonl": "jsonl"}
# What makes a spreadsheet take a cell for a formula, also in its full-width form.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def choose_format(given: str | None, out: Path | None) -> str:
    """The format asked for, or that of the output's name, or text."""
    if given is not None and given not in FORMATS:
        raise unknown("format", given, FORMATS)
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise InputError(f"the output is {out}; expected a name in .csv, .jsonl or .txt")
    return given or (SUFFIXES[out.suffix.lower()] if out else "text")


def printable(text: str) -> str:
    """The text on one line, with control characters written out as \\n, \\x1b and the like."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _destination(out: Path | None) -> "nullcontext[TextIO] | TextIO":
    """UTF-8 everywhere; bytes of a file's name that are no text are written out as \\udc….."""
    if out is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        return nullcontext(sys.stdout)
    try:
        return out.open("w", encoding="utf-8", errors="backslashreplace", newline="")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from None


def _progress(out: Path | None) -> Progress:
    """A bar on standard error, unless the lines themselves are on the screen."""
    console = Console(stderr=True)
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console.is_terminal and (out is not None or not sys.stdout.isatty())
    return Progress(
        *columns, console=console, transient=True, disable=not shown, redirect_stdout=False
    )

"""Predictions for many picture files, in batches, with the bad ones reported and the rest done."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TextIO

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from wcdas.deploy.answer_formats import FORMATS, choose_format
from wcdas.deploy.answers import Answer, Answerer, check_wanted
from wcdas.deploy.model import Source, load
from wcdas.deploy.output import check_file
from wcdas.deploy.pictures import find_pictures
from wcdas.errors import InputError, WorkError

Named = str | os.PathLike[str]


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
    """The answers to picture files, in order; one that cannot be read has an `error`.

    Args:
        run: a run's folder, or its model file.
        pictures: files, folders (with the folders in them) and patterns such as "photos/*.jpg".
        top: how many classes, the most probable first.
        prior: "uniform", "train" or a file: the class mix to predict for.
        abstain: the probability below which the answer is "unsure".
        batch_size: pictures at a time.
        device: auto, cpu, cuda or cuda:N.
    """
    named = [pictures] if isinstance(pictures, (str, os.PathLike)) else pictures
    files, answerer = _prepared(run, named, top, prior, abstain, batch_size, device)
    return _answers(answerer, files, batch_size)


def write_predictions(
    run: Source,
    pictures: Iterable[Named],
    *,
    form: str | None = None,
    out: Path | None = None,
    top: int = 3,
    prior: str | None = None,
    abstain: float | None = None,
    batch_size: int = 64,
    device: str = "auto",
    overwrite: bool = False,
) -> int:
    """`predict_files` as text, CSV or JSON lines, to a file or to standard output; how many.

    Raises:
        WorkError: at the end, if images could not be read.
    """
    form = choose_format(form, out)
    if out is not None:
        check_file(out, overwrite)
    files, answerer = _prepared(run, pictures, top, prior, abstain, batch_size, device)
    unreadable = 0
    with _destination(out) as file, _progress(out) as progress:
        write = FORMATS[form](file, answerer.top)
        for answer in progress.track(_answers(answerer, files, batch_size), total=len(files)):
            write(answer)
            unreadable += answer.error is not None
        file.flush()
    if unreadable:
        lines = "their lines" if out is None else f"their lines in {out}"
        raise WorkError(f"{unreadable} of {len(files)} images could not be read; see {lines}")
    return len(files)


def _prepared(
    run: Source,
    pictures: Iterable[Named],
    top: int,
    prior: str | None,
    abstain: float | None,
    batch_size: int,
    device: str,
) -> tuple[list[Path], Answerer]:
    """Everything is checked before any work, what is quick to check first."""
    check_wanted(top, abstain)
    if batch_size < 1:
        raise InputError(f"batch-size is {batch_size}; expected 1 or more")
    files = find_pictures(pictures)
    return files, Answerer(load(run, device), top=top, prior=prior, abstain=abstain)


def _answers(answerer: Answerer, files: Sequence[Path], batch_size: int) -> Iterator[Answer]:
    for batch, futures in _decoded(answerer, files, batch_size):
        failed = {i: future.exception() for i, future in enumerate(futures)}
        errors = {i: str(e) for i, e in failed.items() if isinstance(e, InputError)}
        good = [i for i in range(len(batch)) if i not in errors]
        answers: Iterator[Answer] = iter(())
        if good:
            inputs = torch.stack([futures[i].result() for i in good])
            answers = answerer.answer(inputs, [str(batch[i]) for i in good])
        for i, path in enumerate(batch):
            yield Answer(str(path), error=errors[i]) if i in errors else next(answers)


def _decoded(
    answerer: Answerer, files: Sequence[Path], batch_size: int
) -> Iterator[tuple[Sequence[Path], list[Future[Tensor]]]]:
    """Batches of pictures; the next is decoded while the model looks at one."""
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        ahead = None
        for at in range(0, len(files), batch_size):
            batch = files[at : at + batch_size]
            last, ahead = ahead, (batch, [pool.submit(answerer.decode, path) for path in batch])
            if last:
                yield last
        if ahead:
            yield ahead
    finally:
        pool.shutdown(cancel_futures=True)


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

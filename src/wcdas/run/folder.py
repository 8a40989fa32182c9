"""The folder of a run: what it is, how far it is, what came out."""

import errno
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import tomli_w
from safetensors import SafetensorError
from torch import Tensor

from wcdas.data.dataset import Dataset
from wcdas.errors import InputError, InterruptedRunError, WorkError, explained
from wcdas.files import (
    DamagedFile,
    MissingFile,
    digest,
    holder,
    read_bytes,
    read_json,
    read_json_lines,
    read_text,
    read_toml,
    write_synced,
)
from wcdas.interrupt import number_of
from wcdas.run.contents import LogLine, Metrics, RunTable
from wcdas.run.model_file import is_whole
from wcdas.run.origin import code, versions
from wcdas.run.spec import Config, as_table, with_defaults
from wcdas.shapes import check_shape

WAIT = "wait until it has ended, or choose another folder with --out"


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoint"
        self.model = path / "model.safetensors"
        self.failure = path / "failure.txt"
        self._seconds = path / "seconds.json"
        self._run, self._log, self._metrics, self._predictions = (
            path / name
            for name in ("run.toml", "log.jsonl", "metrics.json", "predictions.safetensors")
        )

    @property
    def exists(self) -> bool:
        return self._run.exists()

    @property
    def has_checkpoint(self) -> bool:
        return any(self.checkpoints.glob("*"))

    @property
    def is_finished(self) -> bool:
        """Whether it has a result; one that is damaged is made again by going on."""
        if not self._metrics.exists():
            return False  # without a look at the lock, which a run may be about to take
        try:
            self.read_metrics()
        except InputError:
            return False
        return is_whole(self.model)

    def claim(self) -> None:
        """Make the folder; while it is empty another run may take it."""
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)

    def create(self, run: dict[str, Any]) -> None:
        """Write down what the run is, so that it can be gone on with."""
        self.claim()
        with self._writing():
            write_synced(self._run, tomli_w.dumps(run).encode())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"the output folder {self.path} cannot be written "
                f"({os.strerror(error.errno or 0)}); choose another with --out"
            ) from None

    def read_run(self) -> dict[str, Any]:
        remedy = "restore it, or start a new run with another --out"
        try:
            table: dict[str, Any] = read_toml(self._run, RunTable, remedy)
        except MissingFile:
            raise InputError(
                f"{self.path} holds no run; expected a run.toml in it; if it was stopped before "
                "training began, start it again"
            ) from None
        with explained(f"{self._run} is damaged: ", after=f"; {remedy}"):
            check_shape(table, Config, self._run.name)
        return with_defaults(table)

    def log(self, line: dict[str, Any]) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a checkpoint counts on it

    @property
    def epochs_logged(self) -> int:
        return self._log.read_bytes().count(b"\n") if self._log.exists() else 0

    def read_log(self) -> list[dict[str, Any]]:
        remedy = "delete the line, and its epoch is left out"
        return read_json_lines(self._log, LogLine, remedy) if self._log.exists() else []

    def keep_log(self, lines: int) -> None:
        """Drop what was logged after the checkpoint that a resumed run goes on from."""
        if self._log.exists():
            kept = read_bytes(self._log).splitlines(keepends=True)[:lines]  # damaged ones, too
            write_synced(self._log, b"".join(kept))

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        write_synced(self._metrics, (json.dumps(metrics, indent=1) + "\n").encode())

    def read_metrics(self) -> dict[str, Any]:
        remedy = f"it is made again by: {again(self.path)}"
        try:
            metrics: dict[str, Any] = read_json(self._metrics, Metrics, remedy)
        except MissingFile:
            raise self.unfinished() from None
        if told := _disagreement(metrics):
            raise DamagedFile(f"{self._metrics} is damaged: {told}; {remedy}")
        return metrics

    def write_predictions(self, labels: Tensor, predicted: Tensor) -> None:
        """Write the true and the predicted class of every test image."""
        tensors = {"label": labels.int(), "predicted": predicted.int()}
        write_synced(self._predictions, safetensors.torch.save(tensors))

    def read_predictions(self) -> tuple[Tensor, Tensor] | None:
        """Return true and predicted classes; None where there are none, or damaged ones."""
        try:
            tensors = safetensors.torch.load(read_bytes(self._predictions))
            labels, predicted = tensors["label"], tensors["predicted"]
        except (InputError, KeyError, SafetensorError):
            return None
        return (labels, predicted) if labels.shape == predicted.shape else None

    def write_seconds(self, seconds: Mapping[str, float]) -> None:
        """Write down where the time of the call that ended the run went."""
        write_synced(self._seconds, (json.dumps(seconds) + "\n").encode())

    def write_failure(self, reason: str) -> None:
        """Write down why the run has no result, and going on would end the same way."""
        write_synced(self.failure, f"{reason}\n".encode())

    def unfinished(self) -> InputError:
        """Return the error for a run that has no result."""
        if self.failure.exists():
            return InputError(f"{self.path} failed: {read_text(self.failure).strip()}")
        if at_work := holder(self.path):
            return InputError(f"{self.path} is not finished: {at_work} is at work on it")
        return InputError(f"{self.path} is not finished; go on with: {again(self.path)}")


def _disagreement(metrics: Mapping[str, Any]) -> str:
    """Say where the confusion does not belong to the rows of the classes."""
    rows = metrics["per_class"]
    tested, right = [0] * len(rows), [0] * len(rows)
    for row in metrics["confusion"]:
        if len(row) != 3 or not all(0 <= place < len(rows) for place in row[:2]) or row[2] < 1:
            return f"confusion has {row}"
        true, predicted, n = row
        tested[true] += n
        right[true] += n * (true == predicted)
    for row, n, hits in zip(rows, tested, right, strict=True):
        accuracy = hits / n if n else None
        if (row["test_images"], row["accuracy"]) != (n, accuracy):
            return f"class {row['class']!r} has other numbers than its confusion"
    return ""


def again(path: Path) -> str:
    """Return the command that goes on with a run."""
    return f"wcdas train --out {shlex.quote(str(path))} --resume"


def stopped(path: Path, number: int) -> InterruptedRunError:
    """Return the error for a run that a signal has stopped."""
    return InterruptedRunError(f"stopped; go on with: {again(path)}", number)


def new_folder(out: str | Path | None, name: str) -> Path:
    """Return an empty folder: `out`, or runs/<name>-<n>, the first that is free."""
    path = Path(out) if out else next_folder(name)
    check_free(path)
    return path


def next_folder(name: str) -> Path:
    """Return runs/<name>-<n>, the first that is free."""
    n = 1
    while (path := Path("runs") / f"{name}-{n}").exists():
        n += 1
    return path


def check_free(path: Path) -> None:
    """Refuse an output folder that is in use, or cannot be written."""
    try:
        # What is hidden is the lock, or a torn file, of what was killed before it began.
        used = path.is_dir() and any(not file.name.startswith(".") for file in path.iterdir())
    except OSError as error:
        raise InputError(f"the output folder {path} cannot be read ({error.strerror})") from None
    check_unused(path)
    if used:
        begun = any((path / name).exists() for name in ("run.toml", "sweep.toml", "paper.json"))
        goes_on = begun and not RunFolder(path).failure.exists()
        remedy = "go on with --resume or choose" if goes_on else "choose"
        raise InputError(f"the output folder {path} is not empty; {remedy} another")
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "no permission" if there.is_dir() else f"{there} is a file"
        raise InputError(
            f"the output folder {path} cannot be written ({reason}); choose another with --out"
        )


def check_unused(path: Path) -> None:
    """Refuse a folder that another process is at work in."""
    if at_work := holder(path):
        raise InputError(f"{path} is in use by {at_work}; {WAIT}")


def trained_model(path: Path) -> Path:
    """Return the model file of a run's folder, or of that name."""
    run = RunFolder(path)
    file = run.model if path.is_dir() else path
    if run.exists and file.is_file() and not is_whole(file):
        raise InputError(f"{file} is damaged; it is made again by: {again(path)}")
    if not file.is_file():
        if run.exists:
            raise run.unfinished()
        inside = finished_runs(path)
        such = f", such as {inside[0]}," if inside else ""
        raise InputError(
            f"{path} holds no trained model; expected a run's folder{such} or its model.safetensors"
        )
    return file


def finished_runs(path: Path) -> list[Path]:
    """Return the finished runs in a folder of runs, by name."""
    inside = sorted(path.iterdir()) if path.is_dir() else []
    return [folder for folder in inside if RunFolder(folder).is_finished]


def run_table(
    config: Config,
    dataset: Dataset,
    given: Sequence[Mapping[str, Any]],
    threads: int | None,
    weights: str = "",
) -> dict[str, Any]:
    """Return what run.toml holds.

    Args:
        config: what the run is.
        dataset: what it is trained on.
        given: what was set for it, later over earlier.
        threads: of a CPU, which it keeps when it is resumed.
        weights: where those of the backbone came from, once it is built.
    """
    info: dict[str, Any] = {
        "fingerprint": dataset.fingerprint,
        "prior": config.prior,
        "class_counts": dataset.class_counts.tolist(),
        "data": dataset.description,
        "weights": weights,
        "given": [dict(layer) for layer in given],
        "versions": versions(),
        "code": code(),
    }
    if config.teacher:
        info["teacher"] = digest(trained_model(Path(config.teacher)))
    if threads is not None:
        info["threads"] = threads
    return as_table(config) | {"info": info}


@contextmanager
def failures_explained(folder: Path) -> Iterator[None]:
    """Tell failures of the machine in one line that says what to do; what was done is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise WorkError(f"the disk is full; make room and go on with: {again(folder)}") from None
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        told = "out of memory" in text or "can't allocate memory" in text
        if not told and not isinstance(error, MemoryError):
            raise
        raise WorkError(
            "out of memory; lower --set batch_size=…, cut batches into parts with "
            "--set stages.NAME.accumulate=2, or lower --set input_size=…"
        ) from None


@contextmanager
def nothing_left_behind(folder: RunFolder, created: bool) -> Iterator[None]:
    """Leave no run where bad input shows only in the first step, or that is stopped before it; say
    how to go on with one that is stopped later."""
    try:
        yield
    except (InputError, InterruptedRunError, KeyboardInterrupt) as error:
        begun = folder.has_checkpoint or (
            isinstance(error, KeyboardInterrupt) and folder.epochs_logged > 0
        )
        if created and not begun:
            shutil.rmtree(folder.path, ignore_errors=True)
        elif isinstance(error, KeyboardInterrupt):
            raise stopped(folder.path, number_of(error)) from None
        raise

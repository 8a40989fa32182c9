"""Lines on a console: announcements, warnings, and progress of work that takes long."""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from wcdas.data.dataset import Dataset
from wcdas.data.description import describe
from wcdas.processes import count
from wcdas.run.folder import RunFolder
from wcdas.run.schedule import planned
from wcdas.run.spec import Config, Stage

LINES_PER_STAGE = 10
SOON = 2.0  # seconds of a look at images in which there is nothing to tell
ALGORITHMS = {"sgd": "SGD", "adamw": "AdamW"}


def tell(console: Console | None, *lines: str) -> None:
    """Print lines as they are, where there is a console."""
    if console is not None:
        for line in lines:
            console.print(line, highlight=False, markup=False)


def warn(console: Console | None, text: str) -> None:
    """Print one line where there is a console, else warn as Python does."""
    if console is None:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    tell(console, f"warning: {text}")


def busy(console: Console | None, what: str) -> AbstractContextManager[Any]:
    """Show a sign of life on a terminal while there is nothing to count."""
    return nullcontext() if console is None else console.status(what)


def announce(
    console: Console | None,
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    device: torch.device,
    weights: str,
    notes: Sequence[str],
) -> None:
    """Say what is trained on what before training starts, and where its weights came from."""
    size = f" at {config.input_size} px" if config.input_size else ""
    if config.evaluated_at != config.input_size:
        size += f", evaluated at {config.evaluated_at} px,"
    size += ", frozen," if config.frozen else ""
    rank = config.backbone.lora
    learning = f"; adapters of rank {rank} learn beside them" if rank else ""
    neck = f"neck {config.neck.name} and " if config.neck.name != "none" else ""
    tell(
        console,
        *describe(dataset),
        *(f"note: {note}" for note in notes),
        f"{config.method}: {config.backbone.name}{size} with {neck}head {config.head['name']}, "
        f"{device}",
        *([f"  weights: {weights}{learning}"] if weights else []),
        *([f"  teacher: {config.teacher}, {_share(config)}"] if config.teacher else []),
        *([f"  classes: {_spread(config)}"] if config.sharded else []),
        *(_described(config, name, stage) for name, stage in planned(config.stages)),
        f"run folder: {folder.path}",
    )


def _share(config: Config) -> str:
    weight, temperature = config.teacher_weight, config.teacher_temperature
    return f"weight {weight:g} at temperature {temperature:g}"


def _spread(config: Config) -> str:
    drawn = f", {100 * config.negatives:g} % of them drawn in a step" * (config.negatives < 1)
    return f"spread over {count()} process{'es' * (count() > 1)}{drawn}"


def _described(config: Config, name: str, stage: Stage) -> str:
    if stage.trains == "nothing":
        return f"  {name}: {stage.head} head, nothing to train"
    flip = " with flip" if config.augment.flip and stage.augment != "none" else ""
    numbers = ("mixup", "cutmix", "sam", "ema")
    mixed = "".join(f", {k} {v:g}" for k in numbers if (v := getattr(stage, k)))
    mixed += f", {stage.cutmix_sampler} patches" * bool(stage.cutmix and stage.cutmix_sampler)
    mixed += ", class weights from mean features" * stage.imprint
    steps = f"{ALGORITHMS[stage.algorithm]} at rate {stage.lr:g}"
    return (
        f"  {name}: {stage.epochs} epoch{'s' * (stage.epochs != 1)}, {stage.sampler} sampling, "
        f"{steps}, augmentation {stage.augment}{flip}{mixed}"
    )


class ImageProgress(Progress):
    """Progress of a network that looks at images: a bar on a terminal, plain lines without one.

    Args:
        console: where it is shown; None is silent.
        what: is done with them, in a word.
        images: how many there are.
    """

    def __init__(self, console: Console | None, what: str, images: int) -> None:
        self._shown = console is not None and console.is_terminal
        super().__init__(
            TextColumn(what),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[facts]}"),
            console=console,
            disable=not self._shown,
            transient=True,
        )
        self.told, self._what, self._images = console, what, images
        self._found = self._computed = 0
        self._start, self._lines = time.monotonic(), 0
        self._task = self.add_task("", total=images, facts="")

    def found(self, images: int) -> None:
        """Count images that need no look, since what is wanted was stored."""
        self._found += images
        self._show()

    def computed(self, images: int) -> None:
        """Count images that were just looked at."""
        self._computed = min(self._computed + images, self._images - self._found)
        self._show()

    def summary(self) -> str:
        """Say how many were stored, and how long the others took."""
        stored = f"{self._what}: {self._found:,} of {self._images:,} from the store"
        if not self._computed:
            return stored
        return f"{stored}, {self._computed:,} computed in {clock(time.monotonic() - self._start)}"

    def _show(self) -> None:
        done, seconds = self._found + self._computed, time.monotonic() - self._start
        facts = f"{done:,}/{self._images:,} images"
        if self._computed:
            left = seconds / self._computed * (self._images - done)
            facts += f", {self._computed / seconds:,.0f}/s, {clock(left)} left"
        self.update(self._task, completed=done, facts=facts)
        lines = done * LINES_PER_STAGE // self._images
        if not self._shown and seconds > SOON and self._computed and lines > self._lines:
            self._lines = lines
            tell(self.told, f"{self._what}: {facts}")


def clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    return str(timedelta(seconds=round(seconds)))


class StageProgress(Progress):
    """Progress of one stage over its epochs: a bar on a terminal, plain lines without one."""

    def __init__(
        self, console: Console | None, title: str, epochs: int, steps: int, done: int
    ) -> None:
        self._shown = console is not None and console.is_terminal
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not self._shown,
        )
        self._told, self._title, self._epochs = console, title, epochs
        self._task = self.add_task(title, total=epochs * steps, completed=done, facts="")
        self._start, self._aside, self._seen = time.monotonic(), 0.0, 0
        self._steps, self._left = 0, epochs * steps - done
        self._facts = ""

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is not training is no part of its speed."""
        began = time.monotonic()
        yield
        self._aside += time.monotonic() - began

    def step(self, images: int) -> None:
        self._seen += images
        self._steps += 1
        if self._shown:
            self.update(self._task, advance=1, facts=f"{self._rate():,.0f}/s{self._facts}")

    def epoch(self, epoch: int, loss: float, accuracy: float | None) -> None:
        """After an epoch, counted from 0."""
        right = "" if accuracy is None else f" · train {100 * accuracy:.1f} %"
        self._facts = f" · loss {loss:.3f}{right}"
        every = max(1, self._epochs // LINES_PER_STAGE)
        due = (epoch + 1) % every == 0 or epoch + 1 == self._epochs
        if not self._shown and due:
            place = f"{self._title}: epoch {epoch + 1}/{self._epochs}"
            speed = f"{self._rate():,.0f} images/s{self._time_left()}"
            tell(self._told, f"{place}{self._facts} · {speed}")

    def _time_left(self) -> str:
        if not 0 < self._steps < self._left:
            return ""
        seconds = time.monotonic() - self._start
        return f" · {clock(seconds / self._steps * (self._left - self._steps))} left"

    def _rate(self) -> float:
        return self._seen / max(time.monotonic() - self._start - self._aside, 1e-9)

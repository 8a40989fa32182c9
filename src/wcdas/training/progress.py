"""What a person sees while a stage trains: a live bar on a terminal, plain lines without one."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINES_PER_STAGE = 10


class StageProgress:
    """Progress of one stage over its epochs; shown by rank 0 alone."""

    def __init__(
        self, console: Console | None, title: str, epochs: int, steps: int, done: int
    ) -> None:
        self._console, self._title, self._epochs, self._steps = console, title, epochs, steps
        self._bar: Progress | None = None
        if console is not None and console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=10),
                TaskProgressColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task(title, total=epochs * steps, completed=done, facts="")
        self._start, self._seen = time.monotonic(), 0
        self._facts = ""

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, images: int) -> None:
        self._seen += images
        if self._bar is not None:
            rate = self._seen / max(time.monotonic() - self._start, 1e-9)
            self._bar.update(self._task, advance=1, facts=f"{rate:,.0f}/s{self._facts}")

    def epoch(self, epoch: int, loss: float, accuracy: float | None) -> None:
        """After an epoch, counted from 0."""
        right = "" if accuracy is None else f" · train {100 * accuracy:.1f} %"
        self._facts = f" · loss {loss:.3f}{right}"
        if self._console is None or self._bar is not None:
            return
        every = max(1, self._epochs // LINES_PER_STAGE)
        if (epoch + 1) % every == 0 or epoch + 1 == self._epochs:
            rate = self._seen / max(time.monotonic() - self._start, 1e-9)
            place = f"{self._title}: epoch {epoch + 1}/{self._epochs}"
            self._console.print(f"{place}{self._facts} · {rate:,.0f} images/s", highlight=False)

"""What a person sees while a stage trains: a live bar on a terminal, plain lines without one."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from wcdas.run.display import Display

LINES_PER_STAGE = 10


class StageProgress(Display[Progress]):
    """Progress of one stage over its epochs; shown by rank 0 alone."""

    def __init__(
        self, console: Console | None, title: str, epochs: int, steps: int, done: int
    ) -> None:
        super().__init__(console, _bar)
        self._title, self._epochs = title, epochs
        if self._live is not None:
            self._task = self._live.add_task(title, total=epochs * steps, completed=done, facts="")
        self._start, self._seen = time.monotonic(), 0
        self._facts = ""

    def step(self, images: int) -> None:
        self._seen += images
        if self._live is not None:
            self._live.update(self._task, advance=1, facts=f"{self._rate():,.0f}/s{self._facts}")

    def epoch(self, epoch: int, loss: float, accuracy: float | None) -> None:
        """After an epoch, counted from 0."""
        right = "" if accuracy is None else f" · train {100 * accuracy:.1f} %"
        self._facts = f" · loss {loss:.3f}{right}"
        every = max(1, self._epochs // LINES_PER_STAGE)
        due = (epoch + 1) % every == 0 or epoch + 1 == self._epochs
        if self._live is None and due:
            place = f"{self._title}: epoch {epoch + 1}/{self._epochs}"
            self._print(f"{place}{self._facts} · {self._rate():,.0f} images/s")

    def _rate(self) -> float:
        return self._seen / max(time.monotonic() - self._start, 1e-9)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TaskProgressColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
        console=console,
    )

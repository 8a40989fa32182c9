"""What a person sees of a sweep: a live display on a terminal, a line a run without one."""

import time
from collections.abc import Mapping
from datetime import timedelta

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from wcdas.evaluation.table import percent
from wcdas.run.console import Display
from wcdas.run.folder import RunFolder
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.plan import SweepRun


class SweepProgress(Display[Live]):
    """Progress over all epochs of all runs, as their logs tell it."""

    def __init__(
        self, console: Console | None, folder: SweepFolder, epochs: Mapping[SweepRun, int]
    ) -> None:
        """`epochs` are those of every run, finished ones too."""
        self._folder, self._epochs = folder, epochs
        self._numbers = {run: i for i, run in enumerate(epochs, 1)}
        self._began: dict[SweepRun, float] = {}  # the runs at work
        self._left = {run: n for run, n in epochs.items() if not folder.run(run).is_finished}
        self._start, self._before = time.monotonic(), self._done()
        super().__init__(console, self._displayed)  # draws it once

    def started(self, run: SweepRun) -> None:
        self._began[run] = time.monotonic()
        if self._live is None:
            self._print(f"{self._place(run)} started")
        else:
            self._live.refresh()

    def ended(self, run: SweepRun, reason: str | None) -> None:
        took = _clock(time.monotonic() - self._began.pop(run))
        if reason is not None:
            self._left.pop(run)  # no more is expected of it
            self._print(f"{self._place(run)} failed: {reason}")
            return
        metrics = self._folder.run(run).read_metrics()
        self._print(f"{self._place(run)} finished in {took}, all {_headline(metrics)}")

    def _place(self, run: SweepRun) -> str:
        return f"{self._numbers[run]}/{len(self._epochs)} {run.name}"

    def _done(self) -> int:
        """Epochs of the runs that were unfinished when the sweep began."""
        left = dict(self._left)  # the display is drawn by a thread of its own
        return sum(min(n, epochs_done(self._folder.run(run))) for run, n in left.items())

    def _displayed(self, console: Console) -> Live:
        return Live(
            console=console, get_renderable=self._state, refresh_per_second=2, transient=True
        )

    def _state(self) -> RenderableType:
        done, total = self._done(), sum(self._left.values())
        left = time_left(time.monotonic() - self._start, done - self._before, total - done)
        at_work = [
            f"{self._place(run)} epoch {epochs_done(self._folder.run(run))}/{self._epochs[run]}"
            for run in list(self._began)
        ]
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(max(total, 1), done, width=10)
        grid.add_row(bar, Text(" · ".join([*at_work, left])))
        return grid


def time_left(seconds: float, done: int, left: int) -> str:
    """What the epochs done so far make one expect of those that are left."""
    return f"{_clock(seconds / done * left)} left" if done > 0 else "time left unknown"


def epochs_done(folder: RunFolder) -> int:
    log = folder.path / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _headline(metrics: Mapping[str, float | None]) -> str:
    return percent(metrics[str(metrics["headline"])])

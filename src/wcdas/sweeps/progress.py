"""What a person sees of a sweep: a live display on a terminal, a line a run without one."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from wcdas.data.dataset import Dataset
from wcdas.data.description import describe
from wcdas.evaluation.table import percent
from wcdas.run.console import clock, tell
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.plan import Plan, SweepRun


class SweepProgress:
    """Progress over all epochs of all runs, as their logs tell it; live on a terminal alone."""

    def __init__(
        self, console: Console | None, folder: SweepFolder, epochs: Mapping[SweepRun, int]
    ) -> None:
        """`epochs` are those of every run, finished ones too."""
        self._folder, self._epochs = folder, epochs
        self._numbers = {run: i for i, run in enumerate(epochs, 1)}
        self._began: dict[SweepRun, float] = {}  # the runs at work
        self._left = {run: n for run, n in epochs.items() if not folder.run(run).is_finished}
        self._start, self._before = time.monotonic(), self._done()
        self._console, self._live = console, None
        if console is not None and console.is_terminal:
            self._live = Live(  # draws it once
                console=console, get_renderable=self._state, refresh_per_second=2, transient=True
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def announce(
        self, plan: Plan, dataset: Dataset, notes: Sequence[str], weights: Iterable[str]
    ) -> None:
        """Say what is about to be done, and where weights came from."""
        methods, seeds, left = len(plan.methods), plan.seeds, len(self._left)
        todo = "" if left == len(self._epochs) else f", {left} of them to do"
        tell(
            self._console,
            *describe(dataset),
            *(f"note: {note}" for note in notes),
            f"{methods} method{'s' * (methods > 1)} × {seeds} seed{'s' * (seeds > 1)}{todo}: "
            f"{', '.join(plan.methods)}",
            *(f"  weights: {origin}" for origin in dict.fromkeys(weights) if origin),
            f"sweep folder: {self._folder.path}",
        )

    def started(self, run: SweepRun) -> None:
        self._began[run] = time.monotonic()
        if self._live is None:
            tell(self._console, f"{self._name(run)} started")
        else:
            self._live.refresh()

    def lost(self, run: SweepRun, machine: str) -> None:
        """Say that a run goes on elsewhere."""
        told = f"Ray has lost {machine}, where it was; it goes on from its last checkpoint"
        tell(self._console, f"{self._name(run)}: {told}")

    def ended(self, run: SweepRun, reason: str | None) -> None:
        began = self._began.pop(run, time.monotonic())  # one may fail for want of a machine
        took = clock(time.monotonic() - began)
        if reason is not None:
            self._left.pop(run)  # no more is expected of it
            tell(self._console, f"{self._name(run)} failed: {reason}")
            return
        metrics = self._folder.run(run).read_metrics()
        headline = percent(metrics[metrics["headline"]])
        left = f" · {self._time_left()}" if self._live is None and self._time_left() else ""
        tell(self._console, f"{self._name(run)} finished in {took}, all {headline}{left}")

    def _name(self, run: SweepRun) -> str:
        return f"{self._numbers[run]}/{len(self._epochs)} {run.name}"

    def _done(self) -> int:
        """Return the epochs done of the runs that were unfinished when the sweep began."""
        left = dict(self._left)  # the display is drawn by a thread of its own
        return sum(min(n, self._folder.run(run).epochs_logged) for run, n in left.items())

    def _time_left(self) -> str:
        done, total = self._done(), sum(self._left.values())
        seconds, newly = time.monotonic() - self._start, done - self._before
        return (
            f"{clock(seconds / newly * (total - done))} left" if newly > 0 and done < total else ""
        )

    def _state(self) -> RenderableType:
        done, total = self._done(), sum(self._left.values())
        left = self._time_left()
        at_work = [
            f"{self._name(run)} epoch {self._folder.run(run).epochs_logged}/{self._epochs[run]}"
            for run in list(self._began)
        ]
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(max(total, 1), done, width=10)
        grid.add_row(bar, Text(" · ".join([*at_work, left or "time left unknown"])))
        return grid

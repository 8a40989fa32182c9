"""Those who follow a run: told when it starts, after every epoch, and when it ends."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from wcdas.run.console import warn
from wcdas.run.folder import RunFolder
from wcdas.run.spec import flat


class Callback:
    """Follows a run; override what you need. Called in the main process alone.

    >>> class Losses(Callback):
    ...     def on_epoch(self, epoch, facts):
    ...         print(epoch, facts["stage"], facts["loss"])
    """

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        """Before the first epoch, also of a resumed run.

        Args:
            run: the run's folder.
            config: what its run.toml holds.
        """

    def on_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        """After an epoch.

        Args:
            epoch: counted from 0 over all stages; a resumed run goes on where its log ends.
            facts: its line of log.jsonl.
        """

    def on_end(self, metrics: Mapping[str, Any] | None) -> None:
        """At the end.

        Args:
            metrics: what metrics.json holds; None if the run was stopped or failed.
        """


def numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    """The single numbers of a nested table, by names such as test/top1."""
    return {
        name.replace(".", "/"): value
        for name, value in flat(facts).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


class Followers:
    """All callbacks of a run; one that fails is dropped with a warning, and the run goes on."""

    def __init__(self, callbacks: Sequence[Callback], console: Console | None) -> None:
        self._callbacks, self._console = list(callbacks), console

    @contextmanager
    def of(self, folder: RunFolder, config: Mapping[str, Any]) -> Iterator[None]:
        """Tell of the start, and of the end however it comes."""
        self._tell("on_start", folder.path, config)
        try:
            yield
        except BaseException:
            self._tell("on_end", None)
            raise
        if self._callbacks:
            self._tell("on_end", folder.read_metrics())

    def epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        self._tell("on_epoch", epoch, facts)

    def _tell(self, method: str, *arguments: Any) -> None:
        for callback in list(self._callbacks):
            try:
                getattr(callback, method)(*arguments)
            except Exception as error:  # whatever it is, it must not cost the run
                self._callbacks.remove(callback)
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                who = type(callback).__name__
                warn(
                    self._console,
                    f"{who} failed in {method} ({reason}); the run goes on without it",
                )

"""What a person sees of work that takes long: a live display on a terminal, plain lines else."""

from collections.abc import Callable
from typing import Generic, Self, TypeVar

from rich.console import Console
from rich.live import Live
from rich.progress import Progress

Shown = TypeVar("Shown", Live, Progress)


class Display(Generic[Shown]):
    """Shows what `create` makes, on a terminal alone, for as long as a `with` lasts."""

    def __init__(self, console: Console | None, create: Callable[[Console], Shown]) -> None:
        self._console = console
        self._live: Shown | None = None
        if console is not None and console.is_terminal:
            self._live = create(console)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _print(self, line: str) -> None:
        if self._console is not None:
            self._console.print(line, highlight=False, markup=False)

"""Where the time of a run goes, from the call to the report."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Seconds by phase; what is inside another phase counts as its own alone.

    Example:
        >>> phases = Phases()
        >>> with phases("training"), phases("evaluation"):
        ...     pass
        >>> [*phases.seconds]
        ['training', 'evaluation']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began, before = time.monotonic(), sum(self.seconds.values())
        self.seconds.setdefault(name, 0.0)
        try:
            yield
        finally:
            inside = sum(self.seconds.values()) - before
            taken = time.monotonic() - began - inside
            self.seconds[name] += taken

    def table(self) -> dict[str, float]:
        """The seconds of each phase in the order they began, and of all together."""
        everything = self.seconds | {"all": time.monotonic() - self._began}
        return {name: round(seconds, 2) for name, seconds in everything.items()}

    def __str__(self) -> str:
        *parts, (_, everything) = self.table().items()
        each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts)
        return f"{everything:.1f} s: {each}"

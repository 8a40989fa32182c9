"""Ctrl-C and SIGTERM end a run after the step in hand; a second Ctrl-C ends it at once."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupt:
    """`requested` becomes true when the user, or the machine, asks the run to stop;
    `at_once` when asked again.

    Runs in several threads may share one, which the main thread enters.
    """

    def __init__(self) -> None:
        self.requested = self.at_once = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *error: object) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._previous.items():
                signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            self.at_once = True
            raise KeyboardInterrupt
        self.requested = True

"""Ctrl-C, SIGTERM and SIGHUP ask for a stop: a run in training ends after the step in hand, all
else where it is. A second Ctrl-C ends a run at once, too."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PARENT_SECONDS = 0.5  # between two looks for the parent
END_SECONDS = 300  # that a stop without it may take
PARENT = "WCDAS_PARENT"  # names the process that one ends with, where it was started to do so


class Stopped(KeyboardInterrupt):
    """A signal, of that number, ended what the main thread was doing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Interrupt:
    """`requested` becomes true when the user, or the machine, asks for a stop, by the signal
    `number`; `at_once` when the user asks again.

    The main thread listens while it is inside. One inside another listens in its place, and the
    outer one then knows of it. Runs in several threads may share one, which the main thread enters.

    Args:
        raises: raise `Stopped` in the main thread, too, wherever it is.
    """

    def __init__(self, raises: bool = False) -> None:
        self.requested = self.at_once = False
        self.number = int(signal.SIGINT)
        self._raises = raises
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if _in_main_thread():
            outer = self._outer(signal.getsignal(signal.SIGTERM))
            if outer is not None and outer.requested:  # and somebody has caught what it raised
                self.requested, self.number = True, outer.number
            for number in SIGNALS:
                ignored = signal.getsignal(number) is signal.SIG_IGN
                if not (number == signal.SIGHUP and ignored):  # as nohup wants it
                    self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *error: object) -> None:
        if _in_main_thread():
            outer = self._outer(self._previous[signal.SIGTERM])
            if outer is not None and self.requested:
                outer.requested, outer.number = True, self.number
            for number, handler in self._previous.items():
                signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Where nothing is lost by it, a request of the main thread is raised as `Stopped`."""
        before, self._raises = self._raises, _in_main_thread()
        try:
            if self.requested and self._raises:
                raise Stopped(self.number)
            yield
        finally:
            self._raises = before

    def _request(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested, self.number = True, number
            if self._raises:
                raise Stopped(number)
        elif number == signal.SIGINT and "WORLD_SIZE" not in os.environ:
            self.at_once = True
            raise Stopped(number)
        # Else a machine asks again: torchrun and a sweep pass on what their processes have got.

    @staticmethod
    def _outer(handler: Any) -> "Interrupt | None":
        """Return the one that a handler belongs to, where it does."""
        owner = getattr(handler, "__self__", None)
        return owner if isinstance(owner, Interrupt) else None


@contextmanager
def stopped_with_parent(parent: int | None = None) -> Iterator[None]:
    """Where the process that started this one goes, even if it is killed, the block is stopped as
    by SIGTERM; where it does not end then, the process is: nobody else would end it. `parent` is
    its number, for one that may have gone already."""
    parent = os.getppid() if parent is None else parent
    main, over = threading.main_thread().ident, threading.Event()
    assert main is not None

    def watch() -> None:
        while os.getppid() == parent:
            if over.wait(PARENT_SECONDS):
                return
        signal.pthread_kill(main, signal.SIGTERM)
        if not over.wait(END_SECONDS):
            os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="watches parent", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def number_of(stop: BaseException) -> int:
    """Return the signal that something was stopped by."""
    return int(getattr(stop, "number", signal.SIGINT))


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold the signals back until the end of the block; processes started in it never get them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

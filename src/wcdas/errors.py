"""Errors for the person who asked, in one line: what was given, what was expected, what to do."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class InputError(ValueError):
    """Bad input, refused before any work: one line that names it, what was expected, what to do."""


class WorkError(RuntimeError):
    """The work failed; what was done is kept. One line that says where and what to do."""


class InterruptedRunError(WorkError):
    """The run was stopped by a signal, of that number; what was done is kept."""

    def __init__(self, message: str = "stopped", number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


def unknown(kind: str, given: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not known, which suggests the nearest; the caller raises it."""
    known = sorted(known)
    near = get_close_matches(given.lower().replace("_", "-"), known, n=3, cutoff=0.51)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known)}"
    return InputError(f"unknown {kind} {given!r}; {hint}")


def first_line(error: BaseException) -> str:
    """The cause in the message of another package, which may be a page long, or empty."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__


@contextmanager
def explained(where: str, *errors: type[Exception], after: str = "") -> Iterator[None]:
    """Raise the errors of the block as an `InputError` of one line that says where they happened.

    Args:
        where: the words in front, such as "neck: ".
        errors: which are meant; TypeError and ValueError unless given.
        after: the words behind, such as "; expected a text file".
    """
    meant = errors or (TypeError, ValueError)
    try:
        yield
    except meant as error:
        raise InputError(f"{where}{' '.join(str(error).split())}{after}") from None

"""Every picture is decoded once before training, so that a bad one is named at the start."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import NamedTuple, TypeVar

from wcdas.data.decode import Header
from wcdas.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

BLOCK = 64
NAMED = 5


class Verified(NamedTuple):
    """The positions of the good pictures, their headers, and the errors of the bad."""

    good: list[int]
    headers: list[Header]
    bad: list[str]


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The function of every item, in order; PIL decodes outside the interpreter's lock."""
    blocks = [items[start : start + BLOCK] for start in range(0, len(items), BLOCK)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = pool.map(lambda block: [function(item) for item in block], blocks)
        return [result for block in done for result in block]


def verify(check: Callable[[T], Header], pictures: Sequence[T], skip_bad: bool) -> Verified:
    """Check every picture; bad ones are refused together in one line, or left out."""

    def attempt(picture: T) -> Header | InputError:
        try:
            return check(picture)
        except InputError as error:
            return error

    found = in_threads(attempt, pictures)
    good = [i for i, result in enumerate(found) if not isinstance(result, InputError)]
    headers = [result for result in found if not isinstance(result, InputError)]
    bad = [str(result) for result in found if isinstance(result, InputError)]
    if bad and not skip_bad:
        raise InputError(
            f"{len(bad)} of {len(pictures)} images cannot be used: {_first(bad)}. "
            "Remove them, or leave them out with --skip-bad"
        )
    return Verified(good, headers, bad)


def skipped_warning(bad: Sequence[str]) -> list[str]:
    """One line that counts and names the images left out, if there are any."""
    return [f"bad images left out ({len(bad)}): {_first(bad)}"] if bad else []


def _first(bad: Sequence[str]) -> str:
    more = len(bad) - NAMED
    return "; ".join([*bad[:NAMED], *([f"and {more} more"] if more > 0 else [])])


def suggested_size(headers: Sequence[Header]) -> int:
    """The side to train at: 32, 64 or 224 pixels by the median shorter side (≤ 48, ≤ 112, more)."""
    short = median(min(header.width, header.height) for header in headers)
    return 32 if short <= 48 else 64 if short <= 112 else 224


def common_channels(headers: Sequence[Header]) -> int:
    """One channel if every picture is grey, else three."""
    return 1 if all(header.grey for header in headers) else 3

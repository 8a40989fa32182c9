"""What is written: refused before any work, and never in place of another unasked."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wcdas.errors import InputError


def check_new(path: Path, overwrite: bool) -> None:
    """Refuse a file that is there, unless it may be lost."""
    if path.exists() and not overwrite:
        raise InputError(
            f"{path} exists; replace it with --overwrite, or choose another with --out"
        )


def check_place(path: Path) -> None:
    """Refuse a name that nothing can be written under."""
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(
            f"{path} cannot be written; expected a name in an existing folder one may write to"
        )


def check_file(path: Path, overwrite: bool) -> None:
    """Refuse what cannot be written as a file, or must not be."""
    if path.is_dir():
        raise InputError(
            f"{path} is a folder that is in use and cannot be written as a file; "
            "choose another with --out"
        )
    check_place(path)
    check_new(path, overwrite)


def check_folder(path: Path) -> None:
    """Refuse what cannot be made a folder; one with anything in it is never replaced."""
    if path.is_file():
        raise InputError(f"{path} is a file; expected a folder, choose another with --out")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{path} is a folder that is in use; choose another with --out")
    check_place(path)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A name beside the path that takes its place when all went well, and is gone otherwise."""
    place = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield place
        place.replace(path)
    finally:
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)

"""Refusals before any work: packages that are missing, places that cannot be written."""

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


def check_file(path: Path, overwrite: bool, suffix: str = "") -> None:
    """Refuse what cannot be written as a file of that suffix, or must not be."""
    if suffix and path.suffix != suffix:
        raise InputError(f"the output is {path}; expected a name that ends in {suffix}")
    if path.is_dir():
        raise InputError(
            f"{path} is a folder that is in use and cannot be written as a file; "
            "choose another with --out"
        )
    _check_parent(path)
    check_new(path, overwrite)


def check_folder(path: Path) -> None:
    """Refuse what cannot be made a folder; one with anything in it is never replaced."""
    if path.is_file():
        raise InputError(f"{path} is a file; expected a folder, choose another with --out")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{path} is a folder that is in use; choose another with --out")
    _check_parent(path)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """The same name in a folder beside the path. What is written there takes its place when all
    went well, and is gone otherwise."""
    folder = path.with_name(f".{path.stem}.{os.getpid()}")
    folder.mkdir()
    try:
        yield folder / path.name
        for written in sorted(folder.iterdir(), reverse=True):  # weights before what names them
            written.replace(path.with_name(written.name))
    finally:
        shutil.rmtree(folder)


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(
            f"{path} cannot be written; expected a name in an existing folder one may write to"
        )

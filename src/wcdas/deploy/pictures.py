"""The picture files that a user names: files, folders and patterns."""

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from wcdas.data.classes import natural
from wcdas.data.decode import extensions
from wcdas.errors import InputError


def find_pictures(named: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files in the order named; those of a folder or a pattern in natural order.

    A folder stands for the pictures in it and in its folders, by their extensions and without
    hidden ones. A file is taken whatever it is called, also one that is not there: it is reported
    when it is read.

    Raises:
        InputError: a folder or a pattern has no pictures, or there is nothing at all.
    """
    found = [path for name in named for path in _expanded(os.fspath(name))]
    if not found:
        raise InputError("no images are named; expected files, folders or patterns like '*.jpg'")
    if not any(path.exists() for path in found):
        others = f", nor do the {len(found) - 1} others named" if len(found) > 1 else ""
        raise InputError(f"{found[0]} does not exist{others}; expected an image or a folder")
    return found


def _expanded(name: str) -> Iterator[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        yield from _inside(path)
    elif path.exists() or not glob.has_magic(name):
        yield path
    else:
        matches = sorted(glob.glob(str(path), recursive=True), key=natural)
        if not matches:
            raise InputError(f"no file matches {name!r}; expected a pattern such as 'photos/*.jpg'")
        for match in map(Path, matches):
            if not match.is_dir():
                yield match
            elif "**" not in name:  # which names the files below itself
                yield from _inside(match)


def _inside(folder: Path) -> list[Path]:
    found = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(place, name)
            for name in names
            if not name.startswith(".") and Path(name).suffix.lower() in extensions()
        ]
    if not found:
        raise InputError(f"the folder {folder} holds no images; expected files such as 1.jpg")
    return sorted(found, key=lambda path: natural(str(path)))


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read: {error.strerror}") from None

"""The one door for files: what is read is a regular file of a sensible size, what is written is
whole after a crash, and two processes do not write to one folder."""

import fcntl
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wcdas.errors import InputError
from wcdas.shapes import check_shape

LOCK = ".lock"
LARGEST = 2**30  # bytes of a file that is text
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class MissingFile(InputError):  # noqa: N818
    """There is no such file."""


class DamagedFile(InputError):  # noqa: N818
    """A file holds something else than was written there."""


def check_regular(path: Path, at_most: int | None = None) -> None:
    """Refuse what is no regular file, or a larger one than expected, without opening it."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path} cannot be read: {reason}") from None
    if kind := KINDS.get(stat.S_IFMT(status.st_mode)):
        raise InputError(f"{path} is {kind}; expected a file")
    if at_most is not None and status.st_size > at_most:
        raise InputError(
            f"{path} has {status.st_size / 2**20:,.0f} MB; expected at most {at_most / 2**20:,.0f}"
        )


def read_bytes(path: Path, at_most: int | None = None) -> bytes:
    """Return what is in a regular file."""
    check_regular(path, at_most)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingFile(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path) -> str:
    """Return the text in a file, which is UTF-8."""
    try:
        return read_bytes(path, LARGEST).decode()
    except UnicodeDecodeError:
        raise DamagedFile(f"{path} is no text in UTF-8") from None


def read_json(path: Path, hint: Any, remedy: str = "") -> Any:
    """Return what a JSON file holds, which is of a type; else the error ends with a remedy."""
    return _parsed(path, hint, json.loads, remedy)


def read_toml(path: Path, hint: Any, remedy: str = "") -> Any:
    """Return what a TOML file holds, which is of a type; else the error ends with a remedy."""
    return _parsed(path, hint, tomllib.loads, remedy)


def read_json_lines(path: Path, hint: Any, remedy: str) -> list[Any]:
    """Return what a file holds that has a JSON value of a type on each line; else the error ends
    with a remedy."""
    values = []
    for number, line in enumerate(read_bytes(path, LARGEST).splitlines(), start=1):
        where = f"line {number}"
        try:
            value = json.loads(line)
            check_shape(value, hint, where)
        except (ValueError, RecursionError) as error:
            reason = str(error).removeprefix(f"{where} ")
            raise DamagedFile(f"{path}, {where}, is damaged: {reason}; {remedy}") from None
        values.append(value)
    return values


def _parsed(path: Path, hint: Any, parse: Any, remedy: str) -> Any:
    end = f"; {remedy}" if remedy else ""
    try:
        text = read_text(path)
    except MissingFile:
        raise
    except InputError as error:
        raise DamagedFile(f"{error}{end}") from None
    try:
        value = parse(text)
        check_shape(value, hint, path.name)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DamagedFile(f"{path} is damaged: {reason}{end}") from None
    return value


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Write a file so that after a crash it is there whole or not at all."""
    aside = path.with_name(f".{path.name}.partial")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def holder(folder: Path) -> str:
    """Say which process is at work in a folder; nothing where there is none."""
    path = folder / LOCK
    try:
        held_by = path.read_text()[:200].strip() if path.is_file() else ""
        _, pid, _, host = held_by.split()
        if host == os.uname().nodename:
            with suppress(PermissionError):  # it lives, and is another user's
                os.kill(int(pid), 0)  # asks whether it lives
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return held_by
    except (OSError, ValueError, OverflowError):
        pass
    return ""


@contextmanager
def locked(folder: Path, remedy: str) -> Iterator[int]:
    """Keep other processes out of a folder that is there, and tell them who is in it.

    The system takes the lock back when the process is dead, and all that have its descriptor.
    """
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(200).strip() or "another process"
            raise InputError(f"{folder} is in use by {holder}; {remedy}") from None
        except OSError:
            pass  # a disk that knows no locks
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield file.fileno()

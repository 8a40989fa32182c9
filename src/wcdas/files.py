"""Files that must not be lost: after a crash they are there whole, as they were or as they are."""

import os
from pathlib import Path


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

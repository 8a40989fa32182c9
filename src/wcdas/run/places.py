"""Where data lies, as a run remembers it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wcdas.data import HuggingFace, in_memory
from wcdas.data.sources.hugging_face import IN_MEMORY

Table = dict[str, Any]


def place(data: str | Path | HuggingFace) -> str:
    """A dataset's name, or the full path of one's own data."""
    if not isinstance(data, str | Path):
        return str(in_memory(data))
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() else str(data)


def placed(options: Mapping[str, Any]) -> Table:
    """Options of a dataset with full paths, so that a run can be taken up from anywhere."""
    paths = ("source", "root", "classes", "labels")
    return {k: place(str(v)) if k in paths else v for k, v in options.items()}


def short(source: str | Path | HuggingFace) -> str:
    """What a run's folder calls the data: a dataset's name, or that of the folder or file."""
    path = Path(place(source).removeprefix(IN_MEMORY))
    return (path.stem if path.is_file() else path.name) or "data"

"""List files: a line `path label` for each image; the label is a number or the name of a class.

Paths are relative to a root and cannot leave it, neither by `..` nor by a symbolic link. If there
is a tab in a line, the last one separates (class names may then hold spaces), else the last space.
Empty lines and lines that begin with `#` are skipped.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from wcdas.data.classes import encode_labels, read_class_names
from wcdas.data.dataset import Dataset
from wcdas.data.files import dataset_of_files
from wcdas.errors import InputError

TEST_WORDS = ("test", "val", "valid", "validation")


class Line(NamedTuple):
    """One image of a list; `where` is what an error calls the line."""

    where: str
    path: str
    label: str


class Listed(NamedTuple):
    """Paths relative to the root, with the labels as they were written."""

    paths: list[str]
    values: list[int] | list[str]


class Root:
    """An image root that no path can leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resolved = os.path.realpath(folder)
        self._folders: dict[str, str] = {}

    def relative(self, path: str, where: str) -> str:
        """The path below the root, refused if it leads out of it or to no file."""
        joined = os.path.join(self.resolved, path)
        folder, file = os.path.split(joined)
        # Many images share a folder: its links are followed once.
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        real = os.path.join(self._folders[folder], file)
        if os.path.islink(real) or file in ("", ".", ".."):
            real = os.path.realpath(real)
        if os.path.commonpath([self.resolved, real]) != self.resolved:
            raise InputError(f"{where}: {path} leads out of {self.folder}; expected a path inside")
        if not os.path.isfile(real):
            raise InputError(f"{where}: {path} does not exist in {self.folder}; set data.root")
        return Path(os.path.relpath(real, self.resolved)).as_posix()


def open_list(
    file: Path,
    *,
    root: Path | None = None,
    classes: Path | None = None,
    skip_bad: bool = False,
    seed: int = 0,
) -> Dataset:
    """The images a list file names; a list `…test…` beside one named `…train…` is the test set."""
    folder = Root(root or file.parent)
    class_names = read_class_names(classes) if classes else None
    train = checked(parse_list(file), folder)
    labels, class_names = encode_labels(train.values, class_names, str(file))
    beside = _test_list(file)
    test = checked(parse_list(beside), folder) if beside else None
    return dataset_of_files(
        str(file),
        folder.folder,
        class_names,
        (train.paths, labels),
        (test.paths, _same_classes(test, class_names, beside)) if test and beside else None,
        skip_bad=skip_bad,
        seed=seed,
        description={
            "source": "list",
            "train": file.name,
            **({"test": beside.name} if beside else {}),
        },
    )


def parse_list(file: Path) -> list[Line]:
    """The lines of a list file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read as a list file ({error}); expected lines “path label”"
        ) from error
    lines = []
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if not line or line.startswith("#"):
            continue
        where = f"{file}, line {number}"
        parts = line.rsplit("\t" if "\t" in line else None, 1)
        if len(parts) != 2:
            raise InputError(f"{where}: {line[:80]!r} has no label; expected “path label”")
        lines.append(Line(where, parts[0].strip(), parts[1].strip()))
    if not lines:
        raise InputError(f"{file} names no images; expected lines “path label”")
    return lines


def checked(lines: list[Line], root: Root) -> Listed:
    """Every line points to a file below the root, and no file has two labels."""
    paths = []
    labels: dict[str, str] = {}
    for line in lines:
        path = root.relative(line.path, line.where)
        if labels.setdefault(path, line.label) != line.label:
            raise InputError(
                f"{line.where}: {path} has the label {line.label}, and before {labels[path]}"
            )
        paths.append(path)
    values = [line.label for line in lines]
    if all(re.fullmatch(r"-?[0-9]{1,18}", value) for value in values):
        return Listed(paths, [int(value) for value in values])
    return Listed(paths, values)


def _same_classes(test: Listed, class_names: list[str], file: Path) -> Tensor:
    return encode_labels(test.values, class_names, str(file))[0]


def _test_list(file: Path) -> Path | None:
    if "train" not in file.name:
        return None
    candidates = [file.with_name(file.name.replace("train", word)) for word in TEST_WORDS]
    return next((path for path in candidates if path.is_file()), None)

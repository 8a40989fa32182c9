"""List files: a line `path label` for each image; the label is a number or the name of a class.

Paths are relative to a root and cannot leave it, neither by `..` nor by a symbolic link. If there
is a tab in a line, the last one separates (class names may then hold spaces), else the last space.
Empty lines and lines that begin with `#` are skipped.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from wcdas.data.classes import UNREADABLE, encode_labels
from wcdas.data.dataset import Dataset, FileImages
from wcdas.data.sources.assembly import TEST_WORDS, dataset_of_images
from wcdas.data.sources.options import Options
from wcdas.errors import InputError, explained


class Line(NamedTuple):
    """One image of a list; `where` is what an error calls the line."""

    where: str
    path: str
    label: str


class Root:
    """An image root that no path can leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resolved = os.path.realpath(folder)
        self._folders: dict[str, str] = {}

    def relative(self, path: str, where: str) -> str:
        """Return the path below the root, refused if it leads out of it or to no file."""
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


def open_list(file: Path, options: Options) -> Dataset:
    """Open a list file; a list `…test…` beside one named `…train…` is the test set."""
    root = Root(options.root or file.parent)
    train, class_names = checked_files(parse_list(file), root, options.class_names, file)
    description, test = {"source": "list", "train": file.name}, None
    words = TEST_WORDS if "train" in file.name else ()
    beside = [file.with_name(file.name.replace("train", word)) for word in words]
    for test_file in [path for path in beside if path.is_file()][:1]:
        test, _ = checked_files(parse_list(test_file), root, class_names, test_file)
        description["test"] = test_file.name
    return dataset_of_images(str(file), class_names, train, test, options, description)


def parse_list(file: Path) -> list[Line]:
    """Return the lines of a list file."""
    expected = "); expected lines “path label”"
    with explained(f"{file} cannot be read as a list file (", *UNREADABLE, after=expected):
        text = file.read_text(encoding="utf-8")
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


def checked_files(
    lines: list[Line], root: Root, class_names: list[str] | None, file: Path
) -> tuple[FileImages, list[str]]:
    """Return the images of a list and the names of their classes.

    Every line points to a file below the root, and no file has two labels.
    """
    paths = []
    written: dict[str, str] = {}
    for line in lines:
        path = root.relative(line.path, line.where)
        if written.setdefault(path, line.label) != line.label:
            raise InputError(
                f"{line.where}: {path} has the label {line.label}, and before {written[path]}"
            )
        paths.append(path)
    words = [line.label for line in lines]
    numbered = all(re.fullmatch(r"-?[0-9]{1,18}", word) for word in words)
    values = [int(word) for word in words] if numbered else words
    labels, class_names = encode_labels(values, class_names, str(file))
    return FileImages(root.folder, paths, labels, channels=3), class_names

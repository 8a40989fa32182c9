"""List files: a line `path label` for each image; the label is a number or the name of a class.

Paths are relative to a root and cannot leave it, neither by `..` nor by a symbolic link. If there
is a tab in a line, the last one separates (class names may then hold spaces), else the last space.
Empty lines and lines that begin with `#` are skipped.

`imagenet-lt` and `inat2018` are read from their public list files, or iNaturalist's own JSON.
These lie in the root or in a folder of their own (`imagenet_lt/`, `inat2018/`), the images
below the root or beside the lists. Every file is looked for, but not decoded, before training:
the images of these sets are known to be good.
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from wcdas.data.classes import UNREADABLE, encode_labels
from wcdas.data.dataset import Dataset, FileImages
from wcdas.data.sources.assembly import TEST_WORDS, Options, assemble, dataset_of_images
from wcdas.errors import InputError, explained
from wcdas.files import read_json, read_text


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
        self._real_folder = cache(os.path.realpath)  # many images share a folder

    def relative(self, path: str, where: str) -> str:
        """Return the path below the root, refused if it leads out of it or to no file."""
        folder, file = os.path.split(os.path.join(self.resolved, path))
        real = os.path.join(self._real_folder(folder), file)
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
    expected = "); expected lines “path label”"
    with explained(f"{file} cannot be read as a list file (", UNREADABLE, after=expected):
        text = read_text(file)
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


class Published(NamedTuple):
    """The files a dataset is known by; the first pair that is there is read."""

    folders: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]


PUBLISHED = {
    "imagenet-lt": Published(
        folders=(".", "imagenet_lt", "imagenet-lt", "ImageNet_LT"),
        pairs=(
            ("ImageNet_LT_train.txt", "ImageNet_LT_test.txt"),
            ("ImageNet_LT_train.txt", "ImageNet_LT_val.txt"),
        ),
    ),
    "inat2018": Published(
        folders=(".", "inat2018", "iNaturalist18"),
        pairs=(
            ("iNaturalist18_train.txt", "iNaturalist18_val.txt"),
            ("train2018.json", "val2018.json"),
        ),
    ),
}


def open_published(name: str, options: Options) -> Dataset:
    root = options.data_root
    train_file, test_file = _find(name, root)
    train_lines, names = _lines(train_file)
    test_lines, _ = _lines(test_file)
    images = _image_root(train_file, train_lines[0], root)
    names = options.class_names or names
    train, class_names = checked_files(train_lines, images, names, train_file)
    if names is None and class_names == [str(c) for c in range(len(class_names))]:
        class_names = _folder_names(train) or class_names
    test, _ = checked_files(test_lines, images, class_names, test_file)
    return assemble(
        name,
        class_names,
        train,
        test,
        input_size=224,
        channels=3,
        description={
            "source": "lists",
            "train": str(train_file),
            "test": str(test_file),
            "images": str(images.folder),
        },
    )


def _find(name: str, root: Path) -> tuple[Path, Path]:
    known = PUBLISHED[name]
    for folder in known.folders:
        for train, test in known.pairs:
            if (root / folder / train).is_file() and (root / folder / test).is_file():
                return root / folder / train, root / folder / test
    expected = ", or ".join(" and ".join(pair) for pair in known.pairs)
    raise InputError(
        f"{name} is not in {root}; expected {expected} there or in {known.folders[1]}/, and the "
        "images at the paths these files name. Set data.root or WCDAS_DATA"
    )


def _image_root(file: Path, first: Line, root: Path) -> Root:
    """Return the root itself or the folder of the lists, wherever the first image lies."""
    for folder in (root, file.parent):
        if (folder / first.path).is_file():
            return Root(folder)
    raise InputError(
        f"{first.where}: {first.path} is neither in {root} nor in {file.parent}; expected the "
        "images at the paths the list names. Set data.root or WCDAS_DATA"
    )


def _lines(file: Path) -> tuple[list[Line], list[str] | None]:
    """Return the images of a list or JSON file, and the names of the classes if it tells them."""
    if file.suffix != ".json":
        return parse_list(file), None
    try:
        content = read_json(file, dict[str, Any])
        label = {item["image_id"]: int(item["category_id"]) for item in content["annotations"]}
        lines = [
            Line(f"{file}, image {image['id']}", image["file_name"], str(label[image["id"]]))
            for image in content["images"]
        ]
        categories = {int(item["id"]): str(item["name"]) for item in content.get("categories", [])}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} is not in iNaturalist's layout ({type(error).__name__}: {error}); expected "
            "images with id and file_name, annotations with image_id and category_id"
        ) from error
    if not lines:
        raise InputError(f"{file} names no images")
    complete = sorted(categories) == list(range(len(categories)))
    return lines, [categories[c] for c in sorted(categories)] if categories and complete else None


def _folder_names(images: FileImages) -> list[str] | None:
    """Name the classes by their folders (n01440764), if each has one of its own."""
    folders: dict[int, str] = {}
    for path, label in zip(images.paths, images.labels.tolist(), strict=True):
        folder = Path(path).parent.name
        if folders.setdefault(label, folder) != folder:
            return None
    own = len(set(folders.values())) == len(folders) == max(folders) + 1
    return [folders[c] for c in range(len(folders))] if own else None

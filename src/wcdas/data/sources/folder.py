"""A folder of class folders, with `train/` and `test/` (or `val/`) above them or without.

Images lie anywhere below their class folder. Hidden files are ignored, files that are no images
by their extension are counted in a warning, and so are class folders without any image, which are
dropped.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from wcdas.data.classes import check_class_names, natural, some
from wcdas.data.dataset import Dataset, FileImages
from wcdas.data.images import extensions
from wcdas.data.sources.assembly import TEST_WORDS, Options, dataset_of_images
from wcdas.errors import InputError


def open_folder(folder: Path, options: Options) -> Dataset:
    train_folder, test_folder = split_folders(folder)
    train, others = scan(train_folder)
    test, more = scan(test_folder) if test_folder else ({}, Counter())
    others += more
    class_names = _class_names(folder, train, test, others, options)
    warnings = []
    if others:
        warnings.append(
            f"files that are not images, ignored ({others.total()}) in {folder}: {_counted(others)}"
        )
    empty = [name for name in train if not train[name] and not test.get(name)]
    if empty:
        warnings.append(f"class folders without images, dropped ({len(empty)}): {some(empty)}")
    description = {"source": "folder", "train": train_folder.name}
    return dataset_of_images(
        str(folder),
        class_names,
        _images(train, class_names, folder),
        _images(test, class_names, folder) if test_folder else None,
        options,
        description | ({"test": test_folder.name} if test_folder else {}),
        warnings,
    )


def split_folders(folder: Path) -> tuple[Path, Path | None]:
    """Return the folders of class folders for training and, if there is one, for the test."""
    inside = {entry.name.lower(): entry for entry in _subfolders(folder)}
    train = inside.get("train")
    if train is None or not any(_subfolders(train)):
        return folder, None
    tests = [inside[name] for name in TEST_WORDS if name in inside]
    return train, tests[0] if tests else None


def scan(folder: Path) -> tuple[dict[str, list[Path]], Counter[str]]:
    """Return the images of each class folder in natural order, and what other files there are, by
    their extensions."""
    found: dict[str, list[Path]] = {}
    others: Counter[str] = Counter()
    for class_folder in _subfolders(folder):
        files = list(visible_files(class_folder))
        images = [path for path in files if path.suffix.lower() in extensions()]
        others.update(
            suffix for path in files if (suffix := path.suffix.lower()) not in extensions()
        )
        found[class_folder.name] = sorted(images, key=lambda path: natural(str(path)))
    return found, others


def _counted(others: Counter[str]) -> str:
    return some(f"{n} {suffix or 'without extension'}" for suffix, n in others.most_common())


def visible_files(
    folder: Path, onerror: Callable[[OSError], object] | None = None
) -> Iterator[Path]:
    """The files below a folder, without hidden ones and those of hidden folders."""
    for inside, folders, names in os.walk(folder, onerror=onerror):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(inside, name) for name in names if not name.startswith("."))


def _class_names(
    folder: Path,
    train: dict[str, list[Path]],
    test: dict[str, list[Path]],
    others: Counter[str],
    options: Options,
) -> list[str]:
    # Before empty classes are dropped: `Cat` and an empty `cat` are a slip as well.
    check_class_names(sorted(train.keys() | test.keys()))
    untrained = [name for name, images in test.items() if images and not train.get(name)]
    if untrained:
        raise InputError(
            f"{folder}: {some(map(repr, untrained))} has test images but no training images; "
            "add some, or remove the class"
        )
    names = sorted((name for name, images in train.items() if images), key=natural)
    if not names:
        found = f" but {_counted(others)}" if others else ""
        raise InputError(
            f"{folder} holds no images in class folders{found}; expected one folder per class, "
            f"such as {folder}/cat/1.jpg"
        )
    ordered = options.class_names or names
    odd = sorted(set(ordered) ^ set(names), key=natural)
    if odd:
        where = "has no images" if odd[0] in ordered else f"is not in {options.classes}"
        raise InputError(f"class {odd[0]!r} {where}; expected the same names in {folder} and there")
    return ordered


def _images(images: dict[str, list[Path]], class_names: list[str], root: Path) -> FileImages:
    listed = [(path, c) for c, name in enumerate(class_names) for path in images.get(name, [])]
    paths = [path.relative_to(root).as_posix() for path, _ in listed]
    return FileImages(root, paths, torch.tensor([c for _, c in listed], dtype=torch.int64), 3)


def _subfolders(folder: Path) -> list[Path]:
    try:
        inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from error
    return sorted((path for path in inside if path.is_dir()), key=lambda path: natural(path.name))

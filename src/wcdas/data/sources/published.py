"""`imagenet-lt` and `inat2018` from their public list files, or iNaturalist's own JSON.

The lists lie in the root or in a folder of their own (`imagenet_lt/`, `inat2018/`), the images
below the root or beside the lists. Every file is looked for, but not decoded, before training:
the images of these sets are known to be good.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from wcdas.data.dataset import Dataset, FileImages
from wcdas.data.sources.assembly import assemble
from wcdas.data.sources.lists import Line, Root, checked_files, parse_list
from wcdas.data.sources.options import Options
from wcdas.errors import InputError


@dataclass(frozen=True)
class Published:
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
    """Open imagenet-lt or inat2018."""
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
        content = json.loads(file.read_bytes())
        label = {item["image_id"]: int(item["category_id"]) for item in content["annotations"]}
        lines = [
            Line(f"{file}, image {image['id']}", image["file_name"], str(label[image["id"]]))
            for image in content["images"]
        ]
        categories = {int(item["id"]): str(item["name"]) for item in content.get("categories", [])}
    except (OSError, ValueError, KeyError, TypeError) as error:
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

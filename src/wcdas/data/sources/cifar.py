"""`cifar10-lt` and `cifar100-lt`: the canonical long-tailed subsets of the official images.

Looked for under the root, in this order: the official binary archive or the folder it unpacks to;
Parquet files (`cifar100/train.parquet`, `test.parquet`), either all official images in their order
or a long-tailed set in canonical order, of which the first n_c of each class are kept. The archive
is downloaded if nothing is there; it is read with NumPy, without being unpacked or unpickled.
"""

import hashlib
import os
import socket
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchvision.datasets.utils import check_md5, download_url

from wcdas.data.dataset import ArrayImages, Dataset
from wcdas.data.sources.assembly import Images, Options, assemble, decoded
from wcdas.data.sources.tables import read_images, split_files
from wcdas.data.split import canonical_indices, first_indices, long_tail_counts
from wcdas.errors import InputError, explained
from wcdas.files import check_regular, read_bytes

IMBALANCE = 100.0
PIXELS = 3 * 32 * 32
TIMEOUT = 30.0


def open_cifar(name: str, options: Options) -> Dataset:
    archive, root = ARCHIVES[name], options.data_root
    folder = root / name.removesuffix("-lt")
    path = archive.find(root, folder)
    if path is None and folder.is_dir() and any(folder.glob("**/*.parquet")):
        path, found = folder, _read_parquet(folder)
    else:
        path = path or download(archive, root)
        found = _read_binary(archive, path)
    imbalance = IMBALANCE if options.imbalance is None else options.imbalance
    labels, profile = found.train.labels, options.profile
    counts = _counts(labels, len(found.class_names), imbalance, profile, path)
    chosen = (canonical_indices if found.complete else first_indices)(labels, counts)
    train, test = (
        split if isinstance(split, ArrayImages) else decoded(split)
        for split in (found.train.subset(chosen), found.test)
    )
    indices = chosen.numpy().astype("<i8").tobytes()
    return assemble(
        name,
        found.class_names,
        train,
        test,
        input_size=train.pixels.shape[-1],
        channels=3,
        description={
            "source": str(path),
            "imbalance": imbalance,
            "profile": profile,
            "indices_sha256": hashlib.sha256(indices).hexdigest(),
        },
    )


def _counts(
    labels: Tensor, num_classes: int, imbalance: float, profile: str, path: Path
) -> list[int]:
    """Return images per class, refused where the source holds fewer."""
    available = labels.bincount(minlength=num_classes).tolist()
    counts = long_tail_counts(max(available), num_classes, imbalance, profile)
    for c, (needed, held) in enumerate(zip(counts, available, strict=True)):
        if needed > held:
            raise InputError(
                f"data.imbalance {imbalance:g} with profile {profile!r} needs {needed} images of "
                f"class {c}, but {path} holds {held}; it serves {_servable(available)}. "
                "The official binary archive serves every one"
            )
    return counts


def _servable(available: list[int]) -> str:
    """Return the smallest imbalance factor with enough images, in words."""
    n_max = max(available)
    for imbalance in range(1, n_max + 1):
        counts = long_tail_counts(n_max, len(available), imbalance)
        if all(needed <= held for needed, held in zip(counts, available, strict=True)):
            return f"profile 'exp' from imbalance {imbalance} upwards"
    return "no long-tailed subset"


@dataclass(frozen=True)
class Archive:
    """Where an archive comes from and what is in it."""

    url: str
    md5: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    class_names: str
    label_bytes: int

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    def find(self, *folders: Path) -> Path | None:
        """Return the unpacked folder or the archive, in the first of the folders that has one."""
        for folder in folders:
            if (folder / self.folder).is_dir():
                return folder / self.folder
            if (folder / self.file).is_file():
                return folder / self.file
        return None


ARCHIVES = {
    "cifar10-lt": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        test=("test_batch.bin",),
        class_names="batches.meta.txt",
        label_bytes=1,
    ),
    "cifar100-lt": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        md5="03b5dce01913d631647c71ecec9e9cb8",
        folder="cifar-100-binary",
        train=("train.bin",),
        test=("test.bin",),
        class_names="fine_label_names.txt",
        label_bytes=2,
    ),
}


class Official(NamedTuple):
    """The images of a source in their order; `complete` where none of the official is left out."""

    class_names: list[str]
    train: ArrayImages | Images
    test: ArrayImages | Images
    complete: bool


def _read_parquet(folder: Path) -> Official:
    train_files, test_files = split_files(folder)
    if not test_files:
        raise InputError(f"{folder} has no test set; expected test.parquet beside train.parquet")
    train, class_names = read_images(train_files, None, "train")
    test, _ = read_images(test_files, class_names, "test")
    return Official(class_names, train, test, len(train.labels.bincount().unique()) == 1)


def _read_binary(archive: Archive, path: Path) -> Official:
    """Return the images of an archive, or of the folder it unpacks to.

    A record is one label byte (CIFAR-100: coarse, then fine) and 3072 bytes of pixels, channel by
    channel.
    """
    names = [archive.class_names, *archive.train, *archive.test]
    if path.is_dir():
        expected = f"; expected {', '.join(names)}"
        with explained(f"{path} is not complete: ", after=expected):
            files = {name: read_bytes(path / name) for name in names}
    else:
        files = _members(archive, path, names)
    class_names = files[archive.class_names].decode(errors="replace").split()

    length = archive.label_bytes + PIXELS

    def split(parts: tuple[str, ...], prefix: str) -> ArrayImages:
        for part in parts:
            size = len(files[part])
            if not size or size % length:
                raise InputError(
                    f"{path / part} has {size} bytes; expected whole records of {length}"
                )
        stored = b"".join(files[part] for part in parts)
        records = np.frombuffer(stored, dtype=np.uint8).reshape(-1, length)
        labels = torch.from_numpy(records[:, archive.label_bytes - 1].astype(np.int64))
        if len(labels) and int(labels.max()) >= len(class_names):
            raise InputError(f"{path}: label {int(labels.max())} of {len(class_names)} classes")
        pixels = np.ascontiguousarray(records[:, archive.label_bytes :])
        return ArrayImages(torch.from_numpy(pixels).view(-1, 3, 32, 32), labels, prefix)

    train, test = split(archive.train, "train"), split(archive.test, "test")
    return Official(class_names, train, test, complete=True)


def download(archive: Archive, root: Path) -> Path:
    """Fetch the archive into the root; what arrives is kept only if its checksum is right."""
    part = f"{archive.file}.{os.getpid()}.part"
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        root.mkdir(parents=True, exist_ok=True)
        download_url(archive.url, str(root), part, archive.md5)
        return (root / part).replace(root / archive.file)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{archive.file} is not in {root} and cannot be downloaded ({error}); put the file "
            f"from {archive.url} there, or name the folder that holds it with data.root or "
            "WCDAS_DATA"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
        with suppress(OSError):
            (root / part).unlink()


def _members(archive: Archive, path: Path, names: list[str]) -> dict[str, bytes]:
    """Return the known members, held in memory; nothing of the archive is written to disk."""
    check_regular(path)
    if not check_md5(str(path), archive.md5):
        raise InputError(
            f"{path} is damaged: its MD5 is not {archive.md5}; delete it, and it is fetched again"
        )
    wanted = {f"{archive.folder}/{name}": name for name in names}
    files: dict[str, bytes] = {}
    errors = (OSError, EOFError, tarfile.TarError)
    with explained(f"{path} cannot be read as a tar archive: ", *errors), tarfile.open(path) as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is not None and member.name in wanted:
                files[wanted[member.name]] = stream.read()
    missing = [name for name in names if name not in files]
    if missing:
        raise InputError(f"{path} lacks {archive.folder}/{missing[0]}; expected the official one")
    return files

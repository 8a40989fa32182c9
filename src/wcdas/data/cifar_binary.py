"""The official CIFAR archives in their binary version, read with NumPy and never unpickled.

A record is one label byte (CIFAR-100: coarse, then fine) and 3072 bytes of pixels, channel by
channel. torchvision downloads and verifies; the archive is read without being unpacked.
"""

import os
import socket
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.datasets.utils import check_md5, download_url

from wcdas.data.dataset import ArrayImages
from wcdas.errors import InputError

PIXELS = 3 * 32 * 32
TIMEOUT = 30.0


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

    def find(self, root: Path) -> Path | None:
        """The unpacked folder or the archive, in the root or one folder down."""
        short = self.folder.replace("-batches-bin", "").replace("-binary", "").replace("-", "")
        for place in (root, root / short):
            if (place / self.folder).is_dir():
                return place / self.folder
            if (place / self.file).is_file():
                return place / self.file
        return None


ARCHIVES = {
    "cifar10": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        test=("test_batch.bin",),
        class_names="batches.meta.txt",
        label_bytes=1,
    ),
    "cifar100": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        md5="03b5dce01913d631647c71ecec9e9cb8",
        folder="cifar-100-binary",
        train=("train.bin",),
        test=("test.bin",),
        class_names="fine_label_names.txt",
        label_bytes=2,
    ),
}


@dataclass(frozen=True)
class Official:
    """All official images of an archive, in their order."""

    class_names: list[str]
    train: ArrayImages
    test: ArrayImages


def read_binary(archive: Archive, place: Path) -> Official:
    """The images of an archive, or of the folder it unpacks to."""
    names = [archive.class_names, *archive.train, *archive.test]
    files = _files_of_folder(place, names) if place.is_dir() else _members(archive, place, names)
    class_names = files[archive.class_names].decode().split()

    def split(parts: tuple[str, ...], prefix: str) -> ArrayImages:
        records = np.concatenate([_records(archive, files[part], place / part) for part in parts])
        labels = torch.from_numpy(records[:, archive.label_bytes - 1].astype(np.int64))
        if len(labels) and int(labels.max()) >= len(class_names):
            raise InputError(f"{place}: label {int(labels.max())} of {len(class_names)} classes")
        pixels = np.ascontiguousarray(records[:, archive.label_bytes :])
        return ArrayImages(torch.from_numpy(pixels).view(-1, 3, 32, 32), labels, prefix)

    return Official(class_names, split(archive.train, "train"), split(archive.test, "test"))


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


def _files_of_folder(folder: Path, names: list[str]) -> dict[str, bytes]:
    try:
        return {name: (folder / name).read_bytes() for name in names}
    except OSError as error:
        raise InputError(
            f"{folder} is not complete: {error}; expected {', '.join(names)}"
        ) from error


def _members(archive: Archive, path: Path, names: list[str]) -> dict[str, bytes]:
    """The known members, held in memory; nothing of the archive is written to disk."""
    if not check_md5(str(path), archive.md5):
        raise InputError(
            f"{path} is damaged: its MD5 is not {archive.md5}; delete it, and it is fetched again"
        )
    wanted = {f"{archive.folder}/{name}": name for name in names}
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isfile() else None
                if stream is not None and member.name in wanted:
                    files[wanted[member.name]] = stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(f"{path} cannot be read as a tar archive: {error}") from error
    missing = [name for name in names if name not in files]
    if missing:
        raise InputError(f"{path} lacks {archive.folder}/{missing[0]}; expected the official one")
    return files


def _records(archive: Archive, data: bytes, path: Path) -> NDArray[np.uint8]:
    length = archive.label_bytes + PIXELS
    if not data or len(data) % length:
        raise InputError(f"{path} has {len(data)} bytes; expected whole records of {length}")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, length)

"""Features on the disk, by the bytes of the images they are of.

A folder holds what one network makes of images in one view. Its files are parts, written while the
work goes on, each whole or not there: what is killed loses the last seconds, and several processes
may read and write at once. All of it may be deleted at any time.
"""

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from wcdas.files import write_synced

SECONDS = 10.0  # of work that a kill may cost
LIMIT = 10 * 2**30  # bytes of all folders; beyond, what was not used for longest is removed

Warn = Callable[[str], None]


def store_root() -> Path:
    """Return where features are kept: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "wcdas" / "features"


class FeatureStore:
    """The features of images in one folder of the store; within `with`, new ones are added.

    Args:
        key: names network, preprocessing and view.
        warn: is told in a line what is damaged or cannot be written; the work goes on.
    """

    def __init__(self, key: str, warn: Warn) -> None:
        self.folder, self.warn = store_root() / key, warn
        self.digests: list[bytes] = []  # of what is not yet written
        self.features: list[Tensor] = []
        self.written_at = time.monotonic()
        self.writes = True

    def read(self, wanted: Iterable[bytes]) -> dict[bytes, Tensor]:
        """Return the features that are here, each float32 (d,)."""
        wanted = set(wanted)
        found: dict[bytes, Tensor] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            part = self._read_part(path)
            found |= {digest: row for digest, row in part.items() if digest in wanted}
        return found

    def _read_part(self, path: Path) -> dict[bytes, Tensor]:
        try:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest()[:32] != path.stem.split("-")[0]:
                raise SafetensorError("other contents than were written")
            tensors = safetensors.torch.load(data)
        except FileNotFoundError:  # another process has made room
            return {}
        except (OSError, SafetensorError):
            self.warn(f"the stored features in {path} are damaged; they are computed again")
            with suppress(OSError):
                path.unlink()
            return {}
        with suppress(OSError):
            os.utime(path)  # when it was last used
        rows = map(bytes, tensors["digests"].numpy())
        return dict(zip(rows, tensors["features"].unbind(), strict=True))

    def __enter__(self) -> Self:
        self.written_at = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self._write()

    def add(self, digests: Sequence[bytes], features: Tensor) -> None:
        """Take in features, float32 (n, d) on the CPU, and write a part when it is due."""
        self.digests += digests
        self.features.append(features)
        if time.monotonic() - self.written_at > SECONDS:
            self._write()

    def _write(self) -> None:
        self.written_at = time.monotonic()
        if not self.digests or not self.writes:
            return
        digests = torch.frombuffer(bytearray(b"".join(self.digests)), dtype=torch.uint8)
        part = {
            "digests": digests.view(len(self.digests), -1),
            "features": torch.cat(self.features),
        }
        data = safetensors.torch.save(part)
        # Processes that compute the same must not write the same file.
        name = f"{hashlib.sha256(data).hexdigest()[:32]}-{uuid.uuid4().hex[:8]}.safetensors"
        self.digests, self.features = [], []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_synced(self.folder / name, data)
            make_room(LIMIT)
        except OSError as error:
            self.writes = False
            self.warn(
                f"features cannot be kept in {self.folder} ({os.strerror(error.errno or 0)}); "
                "the next run computes them again"
            )


def make_room(limit: int) -> None:
    """Remove the files that were not used for longest until the rest is no larger than `limit`."""
    files = []
    for path in store_root().glob("*/*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    too_much = sum(size for _, size, _ in files) - limit
    for _, size, path in sorted(files):
        if too_much <= 0:
            break
        path.unlink(missing_ok=True)
        too_much -= size

"""`cifar10-lt` and `cifar100-lt`: the canonical long-tailed subsets of the official images.

Looked for under the root, in this order: the official binary archive or the folder it unpacks to;
Parquet files (`cifar100/train.parquet`, `test.parquet`), either all official images in their order
or a long-tailed set in canonical order, of which the first n_c of each class are kept. The archive
is downloaded if nothing is there.
"""

import hashlib
import math
from pathlib import Path

from torch import Tensor

from wcdas.data.assemble import assemble
from wcdas.data.cifar_binary import ARCHIVES, download, read_binary
from wcdas.data.dataset import ArrayImages, Dataset
from wcdas.data.parquet import parquet_class_names, read_images, split_files
from wcdas.data.parquet_images import decode_all, select
from wcdas.data.profile import canonical_indices, first_indices, long_tail_counts
from wcdas.errors import InputError

IMBALANCE = 100.0


def open_cifar(
    name: str, root: Path, imbalance: float = IMBALANCE, profile: str = "exp"
) -> Dataset:
    """`name` is cifar10 or cifar100."""
    archive = ARCHIVES[name]
    place = archive.find(root)
    if place is None and (root / name).is_dir() and any((root / name).glob("**/*.parquet")):
        return _from_parquet(name, root / name, imbalance, profile)
    return _from_binary(name, place or download(archive, root), imbalance, profile)


def _from_binary(name: str, place: Path, imbalance: float, profile: str) -> Dataset:
    source = read_binary(ARCHIVES[name], place)
    counts = _counts(source.train.labels, len(source.class_names), imbalance, profile, place)
    chosen = canonical_indices(source.train.labels, counts)
    train = ArrayImages(source.train.pixels[chosen], source.train.labels[chosen], "train")
    return _long_tailed(
        name, source.class_names, train, source.test, chosen, imbalance, profile, place
    )


def _from_parquet(name: str, folder: Path, imbalance: float, profile: str) -> Dataset:
    train_files, test_files = split_files(folder)
    if not test_files:
        raise InputError(f"{folder} has no test set; expected test.parquet beside train.parquet")
    images, class_names = read_images(train_files, parquet_class_names(train_files[0], None))
    counts = _counts(images.labels, len(class_names), imbalance, profile, folder)
    balanced = images.labels.bincount().unique().numel() == 1
    chosen = (canonical_indices if balanced else first_indices)(images.labels, counts)
    kept, (held_out, _) = select(images, chosen), read_images(test_files, class_names)
    train = ArrayImages(decode_all(kept.encoded, 3, "train"), kept.labels, "train")
    test = ArrayImages(decode_all(held_out.encoded, 3, "test"), held_out.labels, "test")
    return _long_tailed(name, class_names, train, test, chosen, imbalance, profile, folder)


def _counts(
    labels: Tensor, num_classes: int, imbalance: float, profile: str, place: Path
) -> list[int]:
    """Images per class, refused where the source holds fewer."""
    available = labels.bincount(minlength=num_classes).tolist()
    n_max = max(available)
    counts = long_tail_counts(n_max, num_classes, imbalance, profile)
    for c, (needed, held) in enumerate(zip(counts, available, strict=True)):
        if needed > held:
            raise InputError(
                f"data.imbalance {imbalance:g} with profile {profile!r} needs {needed} images of "
                f"class {c}, but {place} holds {held}; it serves {_servable(available)}. "
                "The official binary archive serves every one"
            )
    return counts


def _servable(available: list[int]) -> str:
    """The smallest imbalance factor with enough images, in words."""
    last, n_max = len(available) - 1, max(available)
    # int(n_max · IF^(−c/last)) ≤ a_c  ⇔  IF > (n_max / (a_c + 1))^(last/c)
    bounds = [(n_max / (held + 1)) ** (last / c) for c, held in enumerate(available) if c]
    smallest = max(math.floor(max(bounds)), 1)
    while smallest <= n_max:
        counts = long_tail_counts(n_max, len(available), smallest)
        if all(needed <= held for needed, held in zip(counts, available, strict=True)):
            return f"profile 'exp' from imbalance {smallest} upwards"
        smallest += 1
    return "no long-tailed subset"


def _long_tailed(
    name: str,
    class_names: list[str],
    train: ArrayImages,
    test: ArrayImages,
    chosen: Tensor,
    imbalance: float,
    profile: str,
    place: Path,
) -> Dataset:
    indices = chosen.numpy().astype("<i8").tobytes()
    return assemble(
        f"{name}-lt",
        class_names,
        train,
        test,
        input_size=train.pixels.shape[-1],
        channels=3,
        description={
            "source": str(place),
            "imbalance": imbalance,
            "profile": profile,
            "indices_sha256": hashlib.sha256(indices).hexdigest(),
        },
    )

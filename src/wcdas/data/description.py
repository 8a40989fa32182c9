"""A dataset in a few lines: its tail, its warnings, images that are in both splits."""

import hashlib
from collections.abc import Iterator

from wcdas.data.dataset import ArrayImages, BytesImages, Dataset, FeatureVectors, FileImages, Split
from wcdas.data.decode import Encoded
from wcdas.data.profile import summary
from wcdas.data.verify import skipped_warning

SHOWN = 5


def describe(dataset: Dataset, *, every_bad: bool = False) -> list[str]:
    """The long tail of a dataset, and its warnings; if asked, with a line for every bad image."""
    tail = summary(dataset.class_counts)
    short = skipped_warning(dataset.bad)
    if every_bad and short:
        lines = [line for line in dataset.warnings if line not in short]
        bad = [f"warning: bad images ({len(dataset.bad)}):", *(f"  {b}" for b in dataset.bad)]
    else:
        lines, bad = dataset.warnings, []
    return [
        f"{dataset.name}: {tail.images:,} training and {len(dataset.test):,} test "
        f"{dataset.test.noun}, {tail.classes:,} classes, fingerprint {dataset.fingerprint[:12]}",
        f"  largest class {tail.largest:,}, smallest {tail.smallest:,}, imbalance "
        f"{tail.imbalance:.4g}, Gini {tail.gini:.2f}; many {tail.many}, medium {tail.medium}, "
        f"few {tail.few} classes",
        *(f"warning: {line}" for line in lines),
        *bad,
    ]


def duplicates(dataset: Dataset) -> Iterator[str]:
    """Test samples that are in the training set too, byte for byte."""
    noun = dataset.test.noun
    trained = {digest: i for i, digest in enumerate(_digests(dataset.train))}
    same = [(trained[d], i) for i, d in enumerate(_digests(dataset.test)) if d in trained]
    if not same:
        yield f"no test {noun} are training {noun} too"
        return
    yield f"warning: test {noun} that are training {noun} too: {len(same)}, such as"
    for in_train, in_test in same[:SHOWN]:
        yield f"  {dataset.test.name(in_test)} = {dataset.train.name(in_train)}"


def _digests(split: Split) -> Iterator[bytes]:
    for i in range(len(split)):
        content: Encoded
        if isinstance(split, ArrayImages):
            content = split.pixels[i].numpy().tobytes()
        elif isinstance(split, FeatureVectors):
            content = split.vectors[i].numpy().tobytes()
        elif isinstance(split, BytesImages):
            content = split.encoded[i]
        else:
            assert isinstance(split, FileImages)
            content = (split.root / split.paths[i]).read_bytes()
        yield hashlib.sha256(content).digest()

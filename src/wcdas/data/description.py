"""A dataset in a few numbers and lines: its tail, its warnings, images that are in both splits."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from wcdas.data.dataset import Dataset
from wcdas.data.sources.assembly import digests, skipped_warning
from wcdas.groups import group_sizes


@dataclass(frozen=True)
class LongTailSummary:
    """A long tail in numbers: `many`, `medium` and `few` count classes, `gini` is 0 if balanced."""

    images: int
    classes: int
    largest: int
    smallest: int
    imbalance: float
    gini: float
    many: int
    medium: int
    few: int


def summary(class_counts: Tensor) -> LongTailSummary:
    """The long tail of a training set in a few numbers.

    >>> summary(torch.tensor([300, 50, 10])).imbalance
    30.0
    """
    n = class_counts.sort().values.double()
    rank = torch.arange(1, len(n) + 1, dtype=torch.float64)
    # Mean absolute difference of two classes over twice their mean, from the sorted counts.
    gini = ((2 * rank - len(n) - 1) * n).sum() / (len(n) * n.sum())
    return LongTailSummary(
        images=int(n.sum()),
        classes=len(n),
        largest=int(n[-1]),
        smallest=int(n[0]),
        imbalance=float(n[-1] / n[0]),
        gini=float(gini),
        **group_sizes(class_counts),
    )


def describe(dataset: Dataset, *, every_bad: bool = False) -> list[str]:
    """Describe the long tail of a dataset and its warnings; if asked, every bad image."""
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
        *_mirroring(dataset),
    ]


def _mirroring(dataset: Dataset) -> list[str]:
    """Say what the images decided, and how to overrule them."""
    if "mirroring" not in dataset.description:
        return []
    other = str(not dataset.augment_flip).lower()
    told = dataset.description["mirroring"]
    return [f"note: mirroring {told}; --set augment.flip={other} overrules"]


def duplicates(dataset: Dataset) -> Iterator[str]:
    """Yield lines on test images that are in the training set too, byte for byte."""
    noun = dataset.test.noun
    trained = {digest: i for i, digest in enumerate(digests(dataset.train))}
    same = [(trained[d], i) for i, d in enumerate(digests(dataset.test)) if d in trained]
    if not same:
        yield f"no test {noun} are training {noun} too"
        return
    yield f"warning: test {noun} that are training {noun} too: {len(same)}, such as"
    for in_train, in_test in same[:5]:
        yield f"  {dataset.test.name(in_test)} = {dataset.train.name(in_train)}"

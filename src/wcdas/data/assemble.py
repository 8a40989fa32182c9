"""From two splits to a dataset: what every source has in common is checked here."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wcdas.data.classes import check_class_names, check_gaps, some
from wcdas.data.dataset import Dataset, Split, fingerprint
from wcdas.errors import InputError

TEST_FRACTION = 0.2


def stratified_split(labels: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Indices of the training and test samples: 20 % of each class are for the test.

    Of two or more at least one is for the test and one for training; a single one is for training.
    """
    generator = np.random.RandomState(seed % 2**32)
    test = torch.zeros(len(labels), dtype=torch.bool)
    by_class = np.argsort(labels.numpy(), kind="stable")
    for of_class in np.split(by_class, labels.bincount().cumsum(0)[:-1].numpy()):
        generator.shuffle(of_class)
        n = len(of_class)
        test[of_class[: max(min(max(round(TEST_FRACTION * n), 1), n - 1), 0)]] = True
    return (~test).nonzero().flatten(), test.nonzero().flatten()


def assemble(
    name: str,
    class_names: Sequence[str],
    train: Split,
    test: Split,
    *,
    input_size: int,
    channels: int,
    augment_flip: bool = True,
    description: dict[str, Any],
    warnings: Sequence[str] = (),
    bad: Sequence[str] = (),
) -> Dataset:
    """The dataset, refused where it cannot be trained on, with warnings where it may disappoint."""
    if len(class_names) < 2:
        only = f"one class only ({class_names[0]})" if class_names else "no classes"
        raise InputError(f"{name} has {only}; expected at least two")
    check_class_names(class_names)
    check_gaps(train.labels, class_names, name)
    train_counts = torch.bincount(train.labels, minlength=len(class_names))
    test_counts = torch.bincount(test.labels, minlength=len(class_names))
    if not len(test):
        raise InputError(f"{name} has no test samples; expected at least one of some class")
    return Dataset(
        name=name,
        class_names=list(class_names),
        train=train,
        test=test,
        input_size=input_size,
        channels=channels,
        augment_flip=augment_flip,
        fingerprint=fingerprint(class_names, train, test),
        description=description,
        warnings=[*warnings, *_tail_warnings(class_names, train_counts, test_counts)],
        bad=list(bad),
    )


def _tail_warnings(class_names: Sequence[str], train: Tensor, test: Tensor) -> list[str]:
    def named(mask: Tensor) -> str:
        return some(class_names[c] for c in mask.nonzero().flatten().tolist())

    single, untested = (train == 1) & (test == 0), (train > 1) & (test == 0)
    lines = []
    if single.any():
        lines.append(
            f"classes with one image only ({int(single.sum())}): {named(single)}; "
            "they are trained, and without a test image their accuracy is “–”"
        )
    if untested.any():
        lines.append(
            f"classes without test images ({int(untested.sum())}): {named(untested)}; "
            "their accuracy is “–”"
        )
    return lines

"""Image files become a dataset: checked, split if need be, sized by what is in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcdas.data.assemble import assemble, stratified_split
from wcdas.data.classes import some
from wcdas.data.dataset import Dataset, FileImages
from wcdas.data.decode import check_image
from wcdas.data.verify import common_channels, skipped_warning, suggested_size, verify
from wcdas.errors import InputError


def dataset_of_files(
    name: str,
    root: Path,
    class_names: Sequence[str],
    train: tuple[list[str], Tensor],
    test: tuple[list[str], Tensor] | None,
    *,
    skip_bad: bool,
    seed: int,
    description: dict[str, Any],
    warnings: Sequence[str] = (),
) -> Dataset:
    """Paths relative to `root` with their labels; without a test set 20 % become one.

    A class that is left without any image because all of its images are bad is dropped.
    """
    paths = train[0] + (test[0] if test else [])
    labels = torch.cat([train[1], test[1]]) if test else train[1]

    found = verify(lambda path: check_image(root / path, path), paths, skip_bad)
    if not found.good:
        raise InputError(f"{name} holds no image that can be read; expected a folder per class")
    good = torch.tensor(found.good)
    kept = labels[good].unique()
    lost = [c for c in range(len(class_names)) if not (kept == c).any()] if found.bad else []
    if lost:
        number = torch.full((len(class_names),), -1)
        number[kept] = torch.arange(len(kept))
        labels = number[labels]
        warnings = [
            *warnings,
            f"classes without a readable image are dropped: {some(class_names[c] for c in lost)}",
        ]
        class_names = [class_names[c] for c in kept.tolist()]

    if test:
        in_train, in_test = good[good < len(train[0])], good[good >= len(train[0])]
    else:
        keep, held_out = stratified_split(labels[good], seed)
        in_train, in_test = good[keep], good[held_out]
        description = {**description, "split_seed": seed}
    if found.bad:
        description = {**description, "skipped": len(found.bad)}
    channels = common_channels(found.headers)
    return assemble(
        name,
        class_names,
        FileImages(root, [paths[i] for i in in_train.tolist()], labels[in_train], channels),
        FileImages(root, [paths[i] for i in in_test.tolist()], labels[in_test], channels),
        input_size=suggested_size(found.headers),
        channels=channels,
        description=description,
        warnings=[*warnings, *skipped_warning(found.bad)],
        bad=found.bad,
    )

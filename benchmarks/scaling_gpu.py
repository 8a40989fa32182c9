"""How the time of training on one GPU grows with batch, images, classes and runs at a time.

    python benchmarks/scaling_gpu.py [--data DIR] [--seconds 2] [--out FILE]

ResNet-32 with a WCDAS head, bf16, strong augmentation, as `wcdas train cifar100-lt` does it; images
and classes are CIFAR-100's pixels repeated and labelled anew. A row names what changes, the time of
a step and of an epoch, and thousands of images a second.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from training_gpu import BATCH, ours, rate, together

from wcdas.data import open_dataset
from wcdas.data.dataset import Dataset


def relabelled(dataset: Dataset, images: int, classes: int) -> Dataset:
    """As many images of as many classes, the pixels repeated."""
    train: Any = dataset.train.subset(torch.arange(images) % len(dataset.train))
    train = replace(train, labels=torch.arange(images) % classes)
    test: Any = dataset.test.subset(torch.arange(classes) % len(dataset.test))
    test = replace(test, labels=torch.arange(classes))
    names = [str(i) for i in range(classes)]
    return replace(dataset, class_names=names, train=train, test=test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="data")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    dataset = open_dataset("cifar100-lt", root=given.data)
    rows: list[dict[str, Any]] = []

    def show(what: str, value: int, images: float, batch: int, epoch: int) -> None:
        row = {"what": what, "value": value, "images_per_second": images}
        row |= {"step_ms": 1e3 * batch / images, "epoch_ms": 1e3 * epoch / images}
        rows.append(row)
        print(
            f"{what:<10} {value:>8,}  {row['step_ms']:8.2f} ms a step  "
            f"{row['epoch_ms']:9.1f} ms an epoch  {images / 1e3:8.1f} thousand images/s",
            flush=True,
        )

    def one(what: str, value: int, data: Dataset, batch: int) -> None:
        epoch = len(data.train) // batch * batch
        work = ours(data, amp="bf16", batch_size=batch)
        show(what, value, rate(work, epoch, given.seconds), batch, epoch)

    for batch in (64, 128, 256, 512, 1024):
        one("batch", batch, dataset, batch)
    for images in (2_000, 10_000, 50_000):
        one("images", images, relabelled(dataset, images, 100), BATCH)
    for classes in (10, 1_000, 8_142):
        one("classes", classes, relabelled(dataset, 10_000, classes), BATCH)
    for runs in (1, 2, 4, 8):
        works = [ours(dataset, amp="bf16", seed=seed) for seed in range(runs)]
        epoch = len(dataset.train) // BATCH * BATCH
        show("runs", runs, together(works, epoch, given.seconds), BATCH, epoch)
    if given.out is not None:
        facts = {"rows": rows, "device": torch.cuda.get_device_name(), "torch": torch.__version__}
        given.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Whether decoding keeps up with training on a CPU: the streaming loader alone, and the steps.

    python benchmarks/loader_cpu.py [--images 1024] [--side 96] [--workers 1]

JPEG files of the digits, enlarged, in class folders; `standard` augmentation, 64 pixels, batch 64.
The loader is timed alone, then a training step of ResNet-32 with a WCDAS head on what it made. A
loader that makes more images a second than the step takes is not what training waits for.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from sklearn.datasets import load_digits

import wcdas
from wcdas.backbones import create_backbone
from wcdas.data import open_dataset
from wcdas.data.augment import create_augmentation
from wcdas.data.loader import TrainLoader

BATCH, SIZE = 64, 64


def write_pictures(folder: Path, count: int, side: int) -> None:
    digits = load_digits()
    for i in range(count):
        place = folder / str(digits.target[i % len(digits.target)])
        place.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[i % len(digits.images)] * 15.9).astype("uint8")
        picture = Image.fromarray(pixels).resize((side, side)).convert("RGB")
        picture.save(place / f"{i}.jpg", quality=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder), given.images, given.side)
        dataset = open_dataset(folder)
        loader = TrainLoader(
            dataset.train,
            augmentation=create_augmentation("standard", size=SIZE),
            batch_size=BATCH,
            size=SIZE,
            channels=3,
            mean=[0.5] * 3,
            std=[0.25] * 3,
            workers=given.workers,
        )
        order = torch.arange(len(dataset.train))
        list(loader.epoch(order, 0))  # starts the worker processes
        begin = time.perf_counter()
        batches = list(loader.epoch(order, 1))
        loading = BATCH * len(batches) / (time.perf_counter() - begin)
        loader.close()

    backbone, head = create_backbone("resnet32"), wcdas.WCDASHead(64, dataset.num_classes)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    begin = time.perf_counter()
    for batch in batches[:4]:
        optimizer.zero_grad()
        head.loss(backbone(batch.inputs), batch.labels).backward()
        optimizer.step()
    training = BATCH * len(batches[:4]) / (time.perf_counter() - begin)
    print(f"loader, {given.workers} worker: {loading:8.0f} images/s")
    print(f"training step:      {training:8.0f} images/s")
    print(f"loader / step:      {loading / training:8.1f} ×")


if __name__ == "__main__":
    main()

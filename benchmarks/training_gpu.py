"""Training speed on one GPU beside what people do now, in one process and on the same images.

python benchmarks/training_gpu.py [--data DIR] [--seconds 10] [--parallel 8] [--out FILE]

ResNet-32, batch 256, AutoAugment + crop + flip + Cutout, WCDAS head, SGD with momentum:

- "workers, PIL, float32, eager": images augmented one by one by worker processes, as the public
  code of the paper and most others do;
- "workers, PIL, bf16, compiled": the same with autocast and torch.compile;
- "eager" and "graph": `wcdas train` with engine=eager and engine=auto, float32 and bf16;
- "graph × K": K runs at a time, as `wcdas sweep --parallel K` does them.

The floor is the memory traffic of a step with fused batch norm and ReLU, 475 thousand images/s.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

import wcdas
from wcdas.backbones import create_backbone
from wcdas.data import open_dataset
from wcdas.methods import find_method
from wcdas.processes import Ranks
from wcdas.run.build import build_run
from wcdas.run.folder import RunFolder
from wcdas.run.graph import capture_step
from wcdas.run.loop import Loop
from wcdas.run.settings import resolve
from wcdas.run.stage import StageTraining, enter_stage
from wcdas.streams import own_stream

BATCH, FLOOR = 256, 475_000
CUDA = torch.device("cuda")


class Pictures(Dataset[tuple[Tensor, int]]):
    """CIFAR images as PIL pictures, augmented one by one."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels = pixels.permute(0, 2, 3, 1).numpy()
        self.labels = labels.tolist()
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.AutoAugment(transforms.AutoAugmentPolicy.CIFAR10),
                transforms.ToTensor(),
                transforms.Normalize((0.5,) * 3, (0.25,) * 3),
                transforms.RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0)),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


def forever(loader: "DataLoader[Any]") -> Iterator[Any]:
    while True:
        yield from loader


def with_workers(split: Any, compiled: bool) -> Callable[[], None]:
    """One step of the usual loop."""
    loader = DataLoader(
        Pictures(split.pixels, split.labels),
        BATCH,
        shuffle=True,
        num_workers=12,
        pin_memory=True,
        drop_last=True,
        persistent_workers=True,
    )
    batches = forever(loader)
    backbone = create_backbone("resnet32").to(CUDA)
    head = wcdas.WCDASHead(64, 100).to(CUDA)
    optimizer = torch.optim.SGD(
        [*backbone.parameters(), *head.parameters()], lr=0.2, momentum=0.9, weight_decay=5e-4
    )
    network = torch.compile(backbone) if compiled else backbone

    def step() -> None:
        images, labels = (part.to(CUDA, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=compiled):
            features = network(images)
        head.loss(features, labels).backward()
        optimizer.step()

    return step


class Silent:
    def step(self, images: int) -> None:
        pass


def ours(dataset: Any, **settings: Any) -> Callable[[], None]:
    """One epoch of `wcdas train cifar100-lt`."""
    enough = {"stages": {"representation": {"epochs": 100_000}}}
    given = {"input_size": 32} | enough | settings
    config = resolve("wcdas", "cifar100-lt", [given], {}, None)
    folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
    ranks = Ranks(0, 1, CUDA)
    run = build_run(config, find_method("wcdas"), dataset, folder, ranks, 0)
    enter_stage(run, 0)
    stage = StageTraining(run, 0)
    loop, epochs = Loop(run), iter(range(config.stages["representation"].epochs))
    graph = cache(lambda: capture_step(stage, 0, 0) if stage.capturable else None)
    return lambda: loop.train_epoch(stage, next(epochs), 0, graph(), Silent())  # type: ignore[arg-type]


def rate(work: Callable[[], None], images: int, seconds: float) -> float:
    """Images a second, after three calls that do not count."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        work()
        torch.cuda.synchronize()
        done += images
    return done / (time.perf_counter() - begin)


def together(works: list[Callable[[], None]], images: int, seconds: float) -> float:
    """Images a second of several runs at a time, each in a thread on a stream of its own."""
    rates = [0.0] * len(works)

    def one(i: int) -> None:
        with torch.cuda.stream(own_stream("run")):
            for _ in range(3):
                works[i]()
            torch.cuda.current_stream().synchronize()
            ready.wait()
            begin, done = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds:
                works[i]()
                torch.cuda.current_stream().synchronize()
                done += images
            rates[i] = done / (time.perf_counter() - begin)

    ready = threading.Barrier(len(works))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="data")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    dataset = open_dataset("cifar100-lt", root=given.data)
    epoch = len(dataset.train) // BATCH * BATCH
    found: dict[str, float] = {}

    def show(name: str, value: float) -> None:
        found[name] = value
        base = found["workers, PIL, float32, eager"]
        print(
            f"{name:<32} {value / 1e3:8.1f} thousand images/s  {value / base:6.1f} ×  "
            f"{100 * value / FLOOR:5.1f} % of the floor",
            flush=True,
        )

    show(
        "workers, PIL, float32, eager",
        rate(with_workers(dataset.train, False), BATCH, given.seconds),
    )
    show(
        "workers, PIL, bf16, compiled",
        rate(with_workers(dataset.train, True), BATCH, given.seconds),
    )
    for amp in ("none", "bf16"):
        for engine in ("eager", "auto"):
            name = f"{'graph' if engine == 'auto' else 'eager'}, {amp.replace('none', 'float32')}"
            show(name, rate(ours(dataset, amp=amp, engine=engine), epoch, given.seconds))
    runs = [ours(dataset, amp="bf16", seed=seed) for seed in range(given.parallel)]
    show(f"graph × {given.parallel}, bf16", together(runs, epoch, given.seconds))
    if given.out is not None:
        facts = {"images_per_second": found, "device": torch.cuda.get_device_name()}
        given.out.write_text(json.dumps(facts | {"torch": torch.__version__}, indent=1) + "\n")


if __name__ == "__main__":
    main()

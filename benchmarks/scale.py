"""What a head of many classes takes on several GPUs: memory, bytes on the wire and time of a step.

    python benchmarks/scale.py [--classes 10000000,100000000] [--gpus 8,16,32,64] [--features 512]
        [--samples 64] [--negatives 1.0] [--step 1.615] [--wire 25]
    python benchmarks/scale.py --check 4

`--samples` are those of a GPU in a step. `--step` is the measured time, in seconds, of the loss and
its gradients on one GPU at 4,096 samples × 512 features × a million classes
(`benchmarks/scaling_gpu.py`), to which that of other sizes is in proportion; `--wire` what a GPU
receives in a second, in GB. The backbone, which DDP sees to, comes on top.

`--check` lets so many processes train a small head on this machine, counts what they hold and what
they exchange, and compares both with the formulas.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import wcdas

FLOAT, INTEGER = 4, 8  # bytes
MEASURED_AT = 4096 * 512 * 1_000_000


class Size(NamedTuple):
    """Of a step: W processes, n samples each, d features, C classes, a share r of them drawn."""

    gpus: int
    samples: int
    features: int
    classes: int
    negatives: float = 1.0

    @property
    def own(self) -> int:
        """Classes of the first process, which has the most."""
        return -(-self.classes // self.gpus)

    def held(self) -> int:
        """Bytes of weights and momentum: 2·(C/W)·(d + 1) numbers, the concentrations included."""
        return 2 * FLOAT * self.own * (self.features + 1)

    def gradient(self) -> int:
        """Bytes of the gradient: r·(C/W)·(d + 1) numbers; of what is drawn there is a copy, too."""
        copies = 1 if self.negatives == 1 else 2
        return round(copies * FLOAT * self.negatives * self.own * (self.features + 1))

    def received(self) -> int:
        """Bytes that a process receives in a step, each collective by its ring:

        features gathered for the loss and for its statistics, and their gradient scattered,
        3(W − 1)·n·d; three parts of every sample's loss and their gradient, 2·3(W − 1)·nW; labels,
        once more where classes are drawn; and a cosine of every sample.
        """
        others, of_all = self.gpus - 1, self.gpus * self.samples
        features = 3 * others * self.samples * self.features * FLOAT
        parts = 2 * 3 * others * of_all * FLOAT
        labels = (2 if self.negatives == 1 else 3) * others * self.samples * INTEGER
        sums = 2 * others * (of_all + 1) * FLOAT // self.gpus  # cosines, and the gradient by s
        return features + parts + labels + sums

    def seconds(self, measured: float) -> float:
        """Of computing, in proportion to a measured step."""
        products = self.gpus * self.samples * self.features * self.own * self.negatives
        return measured * products / MEASURED_AT


def table(sizes: list[Size], step: float, wire: float) -> str:
    rows = [
        f"{'classes':>12} {'GPUs':>5} {'weights, momentum':>18} {'gradient':>9} "
        f"{'received':>9} {'wire':>8} {'head':>9}"
    ]
    for size in sizes:
        received = size.received()
        rows.append(
            f"{size.classes:12,} {size.gpus:5} {size.held() / 1e9:15.1f} GB "
            f"{size.gradient() / 1e9:6.1f} GB {received / 1e6:6.1f} MB "
            f"{1e3 * received / (wire * 1e9):5.1f} ms {1e3 * size.seconds(step):6,.0f} ms"
        )
    return "\n".join(rows)


def by_ring(name: str, given: tuple[Any, ...]) -> int:
    """Bytes that a process receives in a collective."""
    world = dist.get_world_size()
    if name == "all_gather_into_tensor":
        return (world - 1) * given[1].nbytes
    if name == "reduce_scatter_tensor":
        return (world - 1) * given[0].nbytes
    return 2 * (world - 1) * given[0].nbytes // world  # all_reduce


def measured(size: Size) -> tuple[int, int]:
    """What a process holds, and what it receives in a step."""
    torch.manual_seed(0)
    head = wcdas.ShardedWCDASHead(size.features, size.classes, negatives=size.negatives)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    if size.negatives < 1:
        head.step_with(optimizer)
    received = [0]
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"):
        setattr(dist, name, _counted(name, getattr(dist, name), received))
    x = torch.randn(size.samples, size.features, requires_grad=True)
    labels = torch.randint(size.classes, (size.samples,))
    head.loss(x, labels).backward()
    head.own_cosine(x.detach(), labels)
    optimizer.step()
    sharded = list(head.sharded_parameters().values())
    held = sum(p.nbytes + optimizer.state[p]["momentum_buffer"].nbytes for p in sharded)
    return held, received[0]


def _counted(name: str, function: Callable[..., Any], received: list[int]) -> Callable[..., Any]:
    def counted(*given: Any, **options: Any) -> Any:
        received[0] += by_ring(name, given)
        return function(*given, **options)

    return counted


def checked(rank: int, size: Size, folder: str) -> None:
    """In a process of its own: measure, and keep what was found."""
    torch.set_num_threads(1)
    address = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size.gpus)
    found = measured(size)
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


def check(size: Size) -> bool:
    """Let processes do a step of a small head, and compare with the formulas."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(target=checked, args=(rank, size, folder)) for rank in range(size.gpus)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        found = [json.loads(Path(folder, f"{i}.json").read_text()) for i in range(size.gpus)]
    print(f"{size}")
    print(f"  held at most {max(held for held, _ in found):,} bytes, by formula {size.held():,}")
    print(f"  received {found[0][1]:,} bytes, by formula {size.received():,}")
    most = max(held for held, _ in found)
    return most == size.held() and all(received == size.received() for _, received in found)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=numbers, default=[10_000_000, 100_000_000])
    parser.add_argument("--gpus", type=numbers, default=[8, 16, 32, 64])
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--samples", type=int, default=64, help="of a GPU in a step")
    parser.add_argument("--negatives", type=float, default=1.0, help="share that is drawn")
    parser.add_argument("--step", type=float, default=1.615, help="measured seconds")
    parser.add_argument("--wire", type=float, default=25.0, help="GB/s that a GPU receives")
    parser.add_argument("--check", type=int, metavar="PROCESSES")
    given = parser.parse_args()
    if given.check is not None:
        small = [Size(given.check, 6, 16, 1000), Size(given.check, 6, 16, 1001, 0.25)]
        right = [check(size) for size in small]
        if not all(right):
            sys.exit("the formulas are wrong")
        return
    sizes = [
        Size(gpus, given.samples, given.features, classes, given.negatives)
        for classes in given.classes
        for gpus in given.gpus
    ]
    print(table(sizes, given.step, given.wire))


if __name__ == "__main__":
    main()

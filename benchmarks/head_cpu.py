"""Forward and backward of the WCDAS loss beside a plain linear layer with cross-entropy, on a CPU.

    python benchmarks/head_cpu.py

Both run in turn in one process; the figure is the ratio of their medians.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from wcdas import WCDASHead


def seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--features", type=int, default=2_048)
    parser.add_argument("--classes", type=int, default=8_142, help="those of iNaturalist 2018")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/head_cpu.json"))
    options = parser.parse_args()

    torch.manual_seed(0)
    features = torch.randn(options.batch, options.features, requires_grad=True)
    labels = torch.randint(options.classes, (options.batch,))
    linear = nn.Linear(options.features, options.classes)
    head = WCDASHead(options.features, options.classes)

    def softmax_step() -> None:
        F.cross_entropy(linear(features), labels).backward()

    def wcdas_step() -> None:
        head.loss(features, labels).backward()

    steps = {"linear + cross-entropy": softmax_step, "WCDASHead.loss": wcdas_step}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(options.repeats + 2):
        for name, step in steps.items():
            linear.zero_grad()
            head.zero_grad()
            features.grad = None
            taken = seconds(step)
            if repeat >= 2:
                times[name].append(taken)

    medians = {name: statistics.median(values) for name, values in times.items()}
    plain, ours = medians.values()
    size = f"{options.batch} × {options.features} × {options.classes}"
    print(f"{size}, forward + backward, {torch.get_num_threads()} threads")
    for name, median in medians.items():
        print(f"{name:24}{1000 * median:8.0f} ms{median / plain:8.2f} ×")
    result = {"size": size, "threads": torch.get_num_threads(), "seconds": medians}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result | {"ratio": ours / plain}, indent=2) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()

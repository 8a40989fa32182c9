"""Training and predicting with many classes on a CPU: seconds, and memory beside the weights.

    python benchmarks/many_classes.py
    PYTHONPATH=…/src python benchmarks/many_classes.py --size 256x128x200000  # another version

Every figure is of a process of its own, in turn. Memory is the peak of the process less what it
held before the first step: the weights, of training their gradient and the optimizer's momentum
too. Predicted are the five most probable classes of every row of a batch.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas import WCDASHead
from wcdas.evaluation.predictions import most_probable
from wcdas.evaluation.scores import logits_of
from wcdas.heads import LinearHead

SIZES = ("256x128x200000", "512x2048x8142", "256x64x2000")
PREDICTED = ("1024x128x200000", "1024x64x1000000")
TOP = 5
STEPS: dict[str, tuple[type[nn.Module], Callable[[Any, Tensor, Tensor], Tensor]]] = {
    "linear + cross-entropy": (nn.Linear, lambda linear, x, y: F.cross_entropy(linear(x), y)),
    "WCDASHead.loss": (WCDASHead, lambda head, x, y: head.loss(x, y)),
}
PREDICTIONS: dict[str, tuple[type[nn.Module], Callable[[Any, Tensor], object]]] = {
    "linear, softmax, topk": (nn.Linear, lambda linear, x: linear(x).softmax(1).topk(TOP)),
    "LinearHead, top": (LinearHead, lambda head, x: most_probable(logits_of(head, x), TOP)),
    "WCDASHead, softmax, topk": (WCDASHead, lambda head, x: head(x).softmax(1).topk(TOP)),
    "WCDASHead, top": (WCDASHead, lambda head, x: most_probable(logits_of(head, x), TOP)),
}


def peak() -> float:
    """Megabytes that the process has held at once, at most."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / 2 ** (20 if sys.platform == "darwin" else 10)


def training(name: str, batch: int, features: int, classes: int, repeats: int) -> dict[str, float]:
    """Train some steps in this process, after one with few classes."""
    kind, loss = STEPS[name]
    for number in (min(classes, 2_000), classes):
        classifier: Any = kind(features, number)
        optimizer = torch.optim.SGD(classifier.parameters(), lr=1e-6, momentum=0.9)
        for parameter in classifier.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()  # now there is momentum
        before, times = peak(), []
        for _ in range(repeats + 1):
            x = torch.randn(batch, features, requires_grad=True)
            y = torch.randint(number, (batch,))
            start = time.perf_counter()
            optimizer.zero_grad()
            loss(classifier, x, y).backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times[1:]), "megabytes": peak() - before}


@torch.no_grad()
def predicting(
    name: str, batch: int, features: int, classes: int, repeats: int
) -> dict[str, float]:
    """Predict in this process, after once with few classes."""
    kind, top = PREDICTIONS[name]
    for number in (min(classes, 2_000), classes):
        classifier: Any = kind(features, number)
        before, times = peak(), []
        for _ in range(repeats + 1):
            x = torch.randn(batch, features)
            start = time.perf_counter()
            top(classifier, x)
            times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times[1:]), "megabytes": peak() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", nargs="*", default=SIZES, help="batch x features x classes")
    parser.add_argument("--predict", nargs="*", default=PREDICTED, help="the same, to predict")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/many_classes.json"))
    options = parser.parse_args()

    found = {}
    jobs: list[tuple[str, Callable[..., dict[str, float]], Iterable[str]]] = [
        *((size, training, STEPS) for size in options.size),
        *((size, predicting, PREDICTIONS) for size in options.predict),
    ]
    for size, work, names in jobs:
        shape = [int(number) for number in size.split("x")]
        print(f"{work.__name__}, {size}, {torch.get_num_threads()} threads")
        for name in names:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                one = pool.apply(work, (name, *shape, options.repeats))
            found[f"{size} {name}"] = one
            print(f"  {name:26}{1000 * one['seconds']:8.0f} ms{one['megabytes']:8.0f} MB")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()

"""How well a head learns from its start: linear, cosine, wndas and wcdas, over widths, class
counts, optimizers, rates and kinds of features.

    python benchmarks/head_start.py [--weights FILE --data ROOT] [--large] [--device cuda]

Every head is used as it comes out of its constructor, with nothing tuned; numbers are means over
three seeds, with --large over one. The features:

    centred     classes around directions of their own, mean 0, as behind a layer norm
    rectified   the same through a ReLU, which leaves mean cosines near 0.5, as pooled features have
    network     of two ReLU layers that start from random numbers and are trained with the head
    pixels      the 64 pixels of scikit-learn's digits
    pretrained  of a frozen network: --weights is tf_efficientnet_lite0 in timm's names, --data the
                root of `cifar100-lt`; the class prior is in the loss, and the accuracy is that of
                training images that were held out

All optimizers and rates of a head are trained at once, as copies side by side.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

import wcdas

RATES = {"SGD": (0.001, 0.01, 0.1), "AdamW": (0.0001, 0.001, 0.01)}
SIZES = ((16, 2), (16, 10), (64, 10), (64, 100), (256, 300), (1280, 100), (4096, 10))
LARGE = ((16, 10_000), (64, 100_000))
HEADS: dict[str, Callable[[int, int], Any]] = {
    "linear": lambda d, c: wcdas.create_head("linear", d, c),
    "cosine, s = 30": lambda d, c: wcdas.create_head("cosine", d, c, scale=30.0),
    "cosine": lambda d, c: wcdas.create_head("cosine", d, c),
    "wndas": lambda d, c: wcdas.create_head("wndas", d, c),
    "wcdas": lambda d, c: wcdas.create_head("wcdas", d, c),
    "wcdas, paper's start": lambda d, c: wcdas.create_head("wcdas", d, c, start="paper"),
}


class Task(NamedTuple):
    """Training and test features with their labels, and what else the training needs."""

    name: str
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    num_classes: int
    width: int  # of what the head is given
    epochs: int = 8
    batch: int = 64
    log_prior: Tensor | None = None
    network: bool = False
    seeds: int = 3  # of the first weights; the order of the samples is the same for all


class Model(nn.Module):
    """A head, behind two ReLU layers where these are trained with it."""

    def __init__(self, task: Task, head: nn.Module) -> None:
        super().__init__()
        inputs, hidden = task.x.shape[1], 256
        layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, task.width), nn.ReLU()]
        self.network = nn.Sequential(*layers) if task.network else nn.Identity()
        self.head = head

    def forward(self, x: Tensor, y: Tensor | None, log_prior: Tensor | None) -> Tensor:
        features = self.network(x)
        if y is None:
            return self.head(features).argmax(1)
        loss: Tensor = self.head.loss(features, y, log_prior=log_prior)  # type: ignore[operator]
        return loss


def synthetic(kind: str, width: int, num_classes: int) -> Task:
    generator = torch.Generator().manual_seed(0)
    inputs = 64 if kind == "network" else width
    centres = 1.5 * inputs**-0.25 * torch.randn(num_classes, inputs, generator=generator)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(num_classes, (n,), generator=generator)
        x = centres[y] + torch.randn(n, inputs, generator=generator)
        return ((x + 0.5).relu() if kind == "rectified" else x), y

    many = num_classes >= 10_000
    train = draw(200_000 if many else min(8_000, max(2_000, 20 * num_classes)))
    name = f"{kind}, {width} features, {num_classes:,} classes"
    task = Task(name, *train, *draw(2_000), num_classes, width, network=kind == "network")
    return task._replace(epochs=2, batch=512, seeds=1) if many else task


def pixels() -> Task:
    digits = wcdas.open_dataset("digits-lt")
    train, test = digits.train, digits.test
    x, test_x = (split.pixels.flatten(1) / 255.0 for split in (train, test))  # type: ignore[attr-defined]
    prior = (digits.class_counts / digits.class_counts.sum()).log().float()
    name = f"pixels, {x.shape[1]} features, 10 classes"
    return Task(name, x, train.labels, test_x, test.labels, 10, x.shape[1], 60, 32, log_prior=prior)


@torch.no_grad()
def pretrained(weights: Path, root: Path, device: str) -> Task:
    data = wcdas.open_dataset("cifar100-lt", root=root)
    name, size = "tf_efficientnet_lite0", 128
    network = wcdas.create_backbone(name, input_size=size, weights=weights).eval().to(device)
    mean, std = (torch.tensor(v, device=device).view(-1, 1, 1) for v in (network.mean, network.std))
    features = []
    for images in data.train.pixels.split(256):  # type: ignore[attr-defined]
        grown = nn.functional.interpolate(
            images.to(device).float() / 255, size=size, mode="bilinear", antialias=True
        )
        features.append(network((grown - mean) / std).float().cpu())
    x, y = torch.cat(features), data.train.labels
    held_out = torch.zeros(len(y), dtype=torch.bool)
    for c in range(data.num_classes):  # a fifth of every class, one image at least
        own = (y == c).nonzero().flatten()
        held_out[own[: max(1, len(own) // 5)]] = True
    train_x, train_y = x[~held_out], y[~held_out]
    counts = train_y.bincount(minlength=data.num_classes)
    prior = (counts / counts.sum()).log()
    called = f"pretrained, {x.shape[1]} features, {data.num_classes} classes"
    return Task(
        called, train_x, train_y, x[held_out], y[held_out], data.num_classes, x.shape[1], 6,
        log_prior=prior,
    )  # fmt: skip


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    if options.weights and options.data:
        yield pretrained(options.weights, options.data, options.device)
    yield pixels()
    for kind in ("centred", "rectified", "network"):
        for width, num_classes in SIZES:
            yield synthetic(kind, width, num_classes)
    for width, num_classes in LARGE if options.large else ():
        yield synthetic("centred", width, num_classes)


def train(task: Task, head: Callable[[int, int], Any], device: str) -> list[float]:
    """The mean accuracy of the classes in % for every optimizer and rate, over the seeds."""
    plans = [(name == "AdamW", rate) for name, rates in RATES.items() for rate in rates]
    plans *= task.seeds
    models = []
    for copy in range(len(plans)):
        torch.manual_seed(copy * task.seeds // len(plans))
        models.append(Model(task, head(task.width, task.num_classes)).to(device))
    first = models[0]
    parameters, buffers = stack_module_state(models)
    parameters = {k: v.detach().clone().requires_grad_() for k, v in parameters.items()}
    adam, rates = (torch.tensor(column, device=device) for column in zip(*plans, strict=True))

    def call(p: Any, b: Any, x: Tensor, y: Tensor | None) -> Tensor:
        prior = None if task.log_prior is None else task.log_prior.to(device)
        return functional_call(first, (p, b), (x, y, prior))

    together = vmap(call, in_dims=(0, 0, None, None))
    x, y = task.x.to(device), task.y.to(device)
    m, v = ({k: torch.zeros_like(p) for k, p in parameters.items()} for _ in range(2))
    steps, step = len(x) // task.batch * task.epochs, 0
    for _ in range(task.epochs):
        for rows in torch.randperm(len(x)).to(device).split(task.batch)[: len(x) // task.batch]:
            loss = together(parameters, buffers, x[rows], y[rows])
            found = torch.autograd.grad(loss.sum(), list(parameters.values()))
            step += 1
            factor = 0.5 * (1 + math.cos(math.pi * (step - 1) / steps))
            update(parameters, found, m, v, adam, rates * factor, step)
    with torch.no_grad():
        parts = [
            together(parameters, buffers, part, None) for part in task.test_x.to(device).split(500)
        ]
        answers = torch.cat(parts, dim=1).cpu()
    right = (answers == task.test_y).double()
    tested = task.test_y.bincount(minlength=task.num_classes).double()
    by_class = torch.zeros(len(plans), task.num_classes).double().index_add_(1, task.test_y, right)
    accuracy: Tensor = 100 * (by_class / tested)[:, tested > 0].mean(1)
    return accuracy.view(task.seeds, -1).mean(0).tolist()


@torch.no_grad()
def update(
    parameters: dict[str, Tensor],
    gradients: tuple[Tensor, ...],
    m: dict[str, Tensor],
    v: dict[str, Tensor],
    adam: Tensor,
    rates: Tensor,
    step: int,
) -> None:
    """SGD with momentum 0.9, or Adam with its usual constants; no decay."""
    for (name, p), g in zip(parameters.items(), gradients, strict=True):
        is_adam, rate = (t.view(-1, *[1] * (p.dim() - 1)) for t in (adam, rates))
        m[name].mul_(0.9).add_(torch.where(is_adam, 0.1 * g, g))
        v[name].mul_(0.999).addcmul_(g, g, value=0.001)
        root = (v[name] / (1 - 0.999**step)).sqrt() + 1e-8
        p -= rate * torch.where(is_adam, m[name] / (1 - 0.9**step) / root, m[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--weights", type=Path, help="of tf_efficientnet_lite0, .safetensors")
    parser.add_argument("--data", type=Path, help="the root of cifar100-lt")
    parser.add_argument("--large", action="store_true", help="up to 100,000 classes; wants a GPU")
    parser.add_argument("--only", default="", help="tasks whose name contains this")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/head_start.json"))
    options = parser.parse_args()
    columns = [f"{name} {rate:g}" for name, rates in RATES.items() for rate in rates]
    print(f"{'':24}" + "".join(f"{column:>14}" for column in columns))
    results: dict[str, dict[str, list[float]]] = {}
    for task in tasks(options):
        if options.only not in task.name:
            continue
        began = time.perf_counter()
        rows = {name: train(task, head, options.device) for name, head in HEADS.items()}
        results[task.name] = rows
        print(f"{task.name}  ({time.perf_counter() - began:.0f} s)")
        for name, row in rows.items():
            print(f"  {name:22}" + "".join(f"{value:14.1f}" for value in row), flush=True)
    for rivals in (("linear", "cosine, s = 30"), ("linear", "cosine, s = 30", "cosine")):
        behind = [
            (max(rows[rival][i] for rival in rivals) - rows["wcdas"][i], f"{task}, {column}")
            for task, rows in results.items()
            for i, column in enumerate(columns)
        ]
        points, where = max(behind)
        print(f"wcdas is at most {points:.1f} points behind {' and '.join(rivals)} ({where})")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"columns": columns, "accuracy": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

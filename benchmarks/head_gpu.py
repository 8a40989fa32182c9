"""The loss of a WCDAS head by every engine, beside a plain linear layer and its fused peers.

    python benchmarks/head_gpu.py                                  # all of it, on a GPU
    python benchmarks/head_gpu.py --only fused fused-fast --size 4096x512x100000
    python benchmarks/head_gpu.py --profile fused-fast             # which kernels take the time
    python benchmarks/head_gpu.py --tune fused-fast                # other tiles and chunks
    python benchmarks/head_gpu.py --device cpu --size 64x32x3000   # a try without a GPU

Forward and backward, median of CUDA events after a warm-up, once launched by Python and once as a
CUDA graph; memory beside inputs, weights and gradients; and the errors of the gradients to features
and weights for the first samples, against float64. Samples lie 0.1 to 0.8 rad from their
prototypes, and ρ is between 0.55 and 0.84, as in trained networks. The linear layers compute in
bfloat16, the heads in float32 or as their engine does. cut-cross-entropy and Liger are measured
where they are installed. A row is added to --out when it is there, and not measured again.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wcdas import WCDASHead
from wcdas.heads.functional import fused
from wcdas.heads.functional.fused import Tile

SIZES = ("512x2048x8142", "4096x512x100000", "4096x512x1000000")
ENGINES = ("plain", "compiled", "chunked", "fused", "fused-fast")
PEERS = {"linear": "torch", "cut-cross-entropy": "cut_cross_entropy", "liger": "liger_kernel"}
CHECKED = 256  # samples whose gradients are compared
TILES = [
    Tile(128, 128, 64, 4, 3),
    Tile(128, 128, 64, 8, 3),
    Tile(128, 128, 64, 8, 3, 128),
    Tile(128, 128, 128, 8, 2, 128),
    Tile(128, 256, 64, 8, 3),
    Tile(128, 256, 64, 8, 4),
    Tile(256, 128, 64, 8, 3),
    Tile(256, 128, 64, 8, 4),
    Tile(64, 256, 64, 4, 3),
    Tile(128, 64, 64, 4, 4, 168),
]
CHUNKS = {"SLOPES": [2**22, 2**23, 3 * 2**22, 2**25, 2**26], "FACTORS": [2**22, 2**24, 2**25]}
Work = Callable[[], list[Tensor]]
Row = dict[str, Any]


class Problem:
    """A head, and samples at some angle to the prototypes of their classes."""

    def __init__(self, size: str, device: str) -> None:
        batch, features, classes = numbers(size)
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=device)

        self.labels = torch.randint(classes, (batch,), generator=generator, device=device)
        self.weight = normal(classes, features) / math.sqrt(features)
        angle = 0.1 + 0.7 * torch.rand(batch, 1, generator=generator, device=device)
        own = F.normalize(self.weight[self.labels], dim=1)
        away = F.normalize(normal(batch, features), dim=1)
        self.x = 5 * (own * angle.cos() + away * angle.sin())
        self.w_rho = torch.linspace(0.55, 0.84, classes, device=device).logit()

    def head(self, engine: Any, dtype: torch.dtype = torch.float32) -> WCDASHead:
        with torch.device("meta"):
            head = WCDASHead(self.weight.shape[1], len(self.weight), start="paper", engine=engine)
        head.to_empty(device=self.x.device)
        with torch.no_grad():
            head.weight.copy_(self.weight)
            head.w_rho.copy_(self.w_rho)
            head.w_scale.fill_(59.0)  # s ≈ 60
            head.scale_units.fill_(1.0)
            head.concentration_unit.fill_(1.0)
        return head.to(dtype)

    def work(self, name: str, count: int | None = None) -> Work:
        """A step: the loss of the first samples and its gradients to features and parameters."""
        x, labels = self.x[:count], self.labels[:count]
        if name in ENGINES:
            head = self.head("plain" if name == "compiled" else name)
            loss = torch.compile(head.loss, dynamic=False) if name == "compiled" else head.loss
            inputs = [x.clone().requires_grad_(), *head.parameters()]
            return lambda: list(torch.autograd.grad(loss(inputs[0], labels), inputs))
        x, weight = (t.bfloat16().requires_grad_() for t in (x, self.weight))
        peer = peer_loss(name)
        return lambda: list(torch.autograd.grad(peer(x, weight, labels), [x, weight]))

    def errors(self, name: str) -> dict[str, float]:
        """Of the gradients to features and weights, for the first samples, against float64."""
        head, x = self.head("chunked", torch.float64), self.x[:CHECKED].double().requires_grad_()
        loss = head.loss(x, self.labels[:CHECKED])
        exact = torch.autograd.grad(loss, [x, head.weight])
        ours = self.work(name, CHECKED)()
        pairs = zip(("error_x", "error_w"), exact, ours, strict=False)
        return {key: ((b.double() - a).norm() / a.norm()).item() for key, a, b in pairs}


def peer_loss(name: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    if name == "linear":
        return lambda x, weight, labels: F.cross_entropy(x @ weight.mT, labels)
    if name == "cut-cross-entropy":
        from cut_cross_entropy import linear_cross_entropy  # type: ignore[import-not-found]

        return lambda x, weight, labels: linear_cross_entropy(x, weight, labels)
    from liger_kernel.transformers import (  # type: ignore[import-not-found]
        LigerFusedLinearCrossEntropyLoss,
    )

    loss = LigerFusedLinearCrossEntropyLoss()
    return lambda x, weight, labels: loss(weight, x, labels)


def milliseconds(work: Callable[[], Any], device: str, seconds: float) -> float:
    """The median, as many times as `seconds` hold, five at least."""
    for _ in range(2):
        work()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < 1e3 * seconds and len(times) < 100):
        if device == "cpu":
            begin = time.perf_counter()
            work()
            times.append(1e3 * (time.perf_counter() - begin))
            continue
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def graph_milliseconds(work: Work, seconds: float) -> float:
    """The same as a CUDA graph, launched at once."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = work()
    found = milliseconds(graph.replay, "cuda", seconds)
    del kept
    return found


def extra_memory(work: Work) -> float:
    """MiB at the most, beside what was there before and the gradients."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gradients = work()
    torch.cuda.synchronize()
    own = sum(gradient.nbytes for gradient in gradients)
    return (torch.cuda.max_memory_allocated() - before - own) / 2**20


def measured(problem: Problem, name: str, device: str, seconds: float) -> Row:
    work = problem.work(name)
    row: Row = {"ms": milliseconds(work, device, seconds)}
    if device != "cpu":
        row["extra_mib"] = extra_memory(work)
        if name.startswith("fused"):
            row["graph_ms"] = graph_milliseconds(work, seconds)
    if name in ENGINES and name != "compiled":  # which would be compiled again
        row |= problem.errors(name)
    return row


def why_not(name: str, size: str, device: str) -> str:
    """Why something is not measured here; nothing, if it is."""
    if name in PEERS and find_spec(PEERS[name]) is None:
        return f"{PEERS[name]} is not installed"
    if device == "cpu" and name in ("cut-cross-entropy", "liger"):
        return "it needs a GPU"
    if name.startswith("fused"):
        try:
            fused.check_device(name, torch.device(device))
        except ValueError as error:
            return str(error)
    if name == "plain" and device != "cpu":
        batch, _, classes = numbers(size)
        needed = 8 * 4 * batch * classes
        if needed > torch.cuda.mem_get_info()[0]:
            return f"it needs some {needed / 2**30:.0f} GiB"
    return ""


def shown(row: Row) -> str:
    if "failed" in row:
        return f"{row['name']:18}{row['failed']}"
    numbers = [f"{row['ms']:10.2f} ms"]
    numbers += [f"{row['graph_ms']:8.2f} ms" if "graph_ms" in row else " " * 11]
    numbers += [f"{row['extra_mib']:10.0f} MiB" if "extra_mib" in row else " " * 14]
    numbers += [f"{row[key]:10.1e}" for key in ("error_x", "error_w") if key in row]
    return f"{row['name']:18}{''.join(numbers)}"


HEADER = f"{'':18}{'launched':>13}{'graph':>11}{'beside':>14}{'error x':>10}{'error w':>10}"


def compare(given: argparse.Namespace) -> None:
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    rows = {(row["size"], row["name"]): row for row in map(json.loads, lines)}
    place = torch.cuda.get_device_name() if given.device != "cpu" else "cpu"
    for size in given.size:
        problem: Problem | None = None
        print(f"{size} (batch × features × classes), {place}\n{HEADER}", flush=True)
        for name in given.only:
            if (size, name) in rows:
                continue
            if why := why_not(name, size, given.device):
                print(f"{name:18}{why}", flush=True)
                continue
            problem = problem or Problem(size, given.device)
            row: Row = {"size": size, "name": name, "device": place, "torch": torch.__version__}
            try:
                row |= measured(problem, name, given.device, given.seconds)
            except torch.cuda.OutOfMemoryError:
                row["failed"] = "out of memory"
            if given.device != "cpu":
                torch.cuda.empty_cache()
            rows[size, name] = row
            print(shown(row), flush=True)
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    for size in given.size:
        print(f"\n{size}\n{HEADER}")
        for name in given.only:
            if (size, name) in rows:
                print(shown(rows[size, name]))


@contextmanager
def changed(name: str, value: Any) -> Iterator[None]:
    before = getattr(fused, name)
    setattr(fused, name, value)
    try:
        yield
    finally:
        setattr(fused, name, before)


def tune(given: argparse.Namespace) -> None:
    """Time a step with one thing changed at a time."""
    size = given.size[0]
    problem, engine = Problem(size, given.device), given.tune
    exact = engine == "fused"
    trials: list[tuple[str, Any]] = [("FORWARD", fused.FORWARD)]  # as it is
    for name in ("FORWARD", "BACKWARD"):
        trials += [(name, getattr(fused, name) | {exact: tile}) for tile in TILES]
    trials += [(name, value) for name, values in CHUNKS.items() for value in values]
    print(f"{size}, {engine}, with one thing changed", flush=True)
    for name, value in trials:
        what = value[exact] if isinstance(value, dict) else f"{value:,}"
        with changed(name, value):
            try:
                work = problem.work(engine)
                ms = milliseconds(work, given.device, given.seconds / 4)
                told = f"{ms:8.3f} ms"
            except Exception as error:  # of Triton, where a tile does not fit
                told = str(error).strip().split("\n")[0][:60]
        print(f"{told:>12}  {name} {what}", flush=True)


def profile(given: argparse.Namespace) -> None:
    """Print what the kernels of a step take."""
    size, activities = given.size[0], [torch.profiler.ProfilerActivity.CPU]
    if given.device != "cpu":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    work = Problem(size, given.device).work(given.profile)
    for _ in range(3):
        work()
    with torch.profiler.profile(activities=activities, acc_events=True) as found:
        work()
        if given.device != "cpu":
            torch.cuda.synchronize()
    key = "self_device_time_total" if given.device != "cpu" else "self_cpu_time_total"
    print(f"{size}, {given.profile}")
    print(found.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


def numbers(size: str) -> list[int]:
    return [int(number) for number in size.split("x")]


def main() -> None:
    names = [*ENGINES, *PEERS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", nargs="*", default=SIZES, help="batch x features x classes")
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="NAME")
    parser.add_argument("--tune", choices=["fused", "fused-fast"], help="at the first size")
    parser.add_argument("--profile", choices=ENGINES, help="at the first size")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/head_gpu.jsonl"))
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; --device cpu --size 64x32x3000 is a try without one")
    if given.tune:
        tune(given)
    elif given.profile:
        profile(given)
    else:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        compare(given)


if __name__ == "__main__":
    main()

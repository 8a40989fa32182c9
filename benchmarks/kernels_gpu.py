"""The kernels of a ResNet-32's training step beside cuDNN and beside the memory floor, on one GPU.

    python benchmarks/kernels_gpu.py [--batch 256] [--bandwidth 4.8] [--out FILE]

Channels last, bfloat16. A convolution of ours holds the batch norm and ReLU before it and the sums
of the one behind it; cuDNN's, in benchmark mode, is the convolution alone. The floor is every map
read or written once at the bandwidth given, in TB/s. The launches are those of one step, with its
maps; each is timed as twenty of them in a CUDA graph, so small maps may stay in the cache. Last
comes the whole network, forward and backward, as one CUDA graph. To tune:
`wcdas/backbones/resnet32_gpu/plan.py`.
"""

import argparse
import copy
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wcdas.backbones.resnet32_gpu.function import Launch, Network
from wcdas.backbones.resnet32_gpu.kernel import Kernel, kernels_on
from wcdas.backbones.resnet32_gpu.network import fuse, layers, plan_for
from wcdas.backbones.resnet32_gpu.network import run as run_kernels
from wcdas.backbones.resnet32_gpu.plan import ACTIVATION, NORMALISED, PLAIN, RELU_NORM, Layer, Plan
from wcdas.backbones.resnets import ResNet32
from wcdas.streams import Beside

CALLS = 20
Row = dict[str, Any]


def microseconds(work: Callable[[], Any], calls: int = CALLS) -> float:
    """The median over replays of a graph of `calls` calls, of one call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            work()
    times = []
    for _ in range(15):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / calls)
    return statistics.median(times[3:])


@dataclass(frozen=True)
class Role:
    """What a kernel does for a layer of the network; `normalised`: after a batch norm and ReLU."""

    work: str
    layer: Layer
    normalised: bool = False

    @property
    def name(self) -> str:
        layer, of = self.layer, ", normalised" if self.normalised else ""
        return f"{self.work}, {layer.in_channels} → {layer.channels}, {layer.height}²{of}"


def roles(plan: Plan) -> dict[Kernel, Role]:
    found = {}
    for i, layer in enumerate(plan.layers):
        found[layer.weight_sum] = Role("weight sum", layer)
        found[layer.backward_start] = Role("backward start", layer)
        for load in (PLAIN, RELU_NORM):
            normalised = load == RELU_NORM
            found[layer.forward(load)] = Role("forward", layer, normalised)
            found[layer.weight_gradient(load)] = Role("weight gradient", layer, normalised)
        if i:
            for store in (ACTIVATION, NORMALISED):
                role = Role("input gradient", layer, store == NORMALISED)
                found[layer.input_gradient(store)] = role
        if i % 2 == 0:
            start = plan.layers[i - 1] if i else None
            found[layer.end(start)] = Role("end of a block", start or layer)
    return found


@dataclass
class Launches:
    """A kernel with the arguments of its first launch in a step, and how often it is launched."""

    kernel: Kernel
    grid: tuple[int, int]
    arguments: tuple[Any, ...]
    count: int = 1

    @property
    def map_bytes(self) -> int:
        """Of all maps it reads or writes; what it does not use is handed in as another map."""
        maps = [a for a in self.arguments if isinstance(a, Tensor) and a.dim() == 4]
        sizes = {m.data_ptr(): m.numel() * 2 for m in maps if m.dtype == torch.bfloat16}
        return sum(sizes.values())


def own_sums(argument: Any) -> Any:
    """A launch adds to its sums, and others read those."""
    is_sums = isinstance(argument, Tensor) and argument.dtype == torch.float64
    return argument.clone() if is_sums else argument


def launches_of_a_step(
    network: ResNet32, plan: Plan, launch: Launch, images: Tensor
) -> list[Launches]:
    found: dict[Kernel, Launches] = {}

    def recorded(kernel: Kernel, grid: tuple[int, int], *arguments: Any) -> None:
        if kernel in found:
            found[kernel].count += 1
        else:
            found[kernel] = Launches(kernel, grid, tuple(map(own_sums, arguments)))
        launch(kernel, grid, *arguments)

    norms, beside = [norm for _, norm in layers(network)], Beside("weights", images.device)
    feature_map = run_kernels(Network(plan, norms, recorded, beside), network, images)
    feature_map.backward(torch.randn_like(feature_map))
    return list(found.values())


def cudnn(role: Role, batch: int, device: torch.device) -> Callable[[], Tensor] | None:
    """The same pass of the convolution alone."""
    layer = role.layer
    last = {"memory_format": torch.channels_last}

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=device).bfloat16().contiguous(**last)

    x = random(batch, layer.in_channels, layer.height, layer.width)
    weight = random(layer.channels, layer.in_channels, 3, 3)
    gradient = random(batch, layer.channels, *layer.out_size)

    def backward(by_input: bool) -> Tensor:
        stride, ones, zeros = [layer.stride] * 2, [1, 1], [0, 0]
        mask = [by_input, not by_input, False]
        return torch.ops.aten.convolution_backward(
            gradient, x, weight, None, stride, ones, ones, False, zeros, 1, mask
        )[1 - by_input]

    return {
        "forward": lambda: F.conv2d(x, weight, stride=layer.stride, padding=1),
        "input gradient": lambda: backward(True),
        "weight gradient": lambda: backward(False),
    }.get(role.work)


def kernel_rows(images: Tensor, bandwidth: float) -> list[Row]:
    """Time every kernel of a step, the most costly first."""
    network = ResNet32().to(images.device)
    plan = plan_for(network, images)
    launch = kernels_on(images.device, plan.kernels).launch
    role_of = roles(plan)
    rows = []
    for one in launches_of_a_step(network, plan, launch, images):
        role = role_of[one.kernel]
        peer = cudnn(role, len(images), images.device)
        rows.append(
            {
                "kernel": one.kernel.name,
                "name": role.name,
                "count": one.count,
                "us": microseconds(partial(launch, one.kernel, one.grid, *one.arguments)),
                "cudnn_us": microseconds(peer) if peer else None,
                "floor_us": one.map_bytes / bandwidth / 1e6,
            }
        )
    return sorted(rows, key=lambda row: -row["count"] * row["us"])


def print_rows(rows: list[Row]) -> None:
    print(
        f"{'µs a launch':52}{'ours':>8}{'cuDNN':>8}{'ratio':>7}{'floor':>8}{'share':>7}{'sum':>9}"
    )
    for row in rows:
        ours, theirs, floor = row["us"], row["cudnn_us"], row["floor_us"]
        beside = f"{theirs:8.1f}{ours / theirs:7.2f}" if theirs else " " * 15
        least = f"{floor:8.1f}{floor / ours:7.0%}" if floor else " " * 15
        name = f"{row['name']:47} ×{row['count']:<3}"
        print(f"{name}{ours:8.1f}{beside}{least}{row['count'] * ours:9.1f}")


def network_step(network: Any, images: Tensor) -> Callable[[], None]:
    def step() -> None:
        with torch.autocast(images.device.type, torch.bfloat16):
            feature_map = network.forward_map(images)
        feature_map.backward(torch.ones_like(feature_map))
        network.zero_grad(set_to_none=True)

    return step


def network_times(images: Tensor) -> dict[str, float]:
    """Of a step of the whole network, channels last as torch runs it and through the kernels."""
    plain = ResNet32().to(images.device)
    fused = copy.deepcopy(plain)
    plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fuse(fused)
    with torch.autocast(images.device.type, torch.bfloat16):
        if "ResidualFunction" not in type(fused.forward_map(images).grad_fn).__name__:
            raise SystemExit("the kernels do not take these images")
    return {
        name: microseconds(network_step(network, images), calls=1)
        for name, network in {"plain": plain, "fused": fused}.items()
    }


def run(images: Tensor, bandwidth: float) -> dict[str, Any]:
    """Time all, print the tables and return them."""
    torch.backends.cudnn.benchmark = True
    rows = kernel_rows(images, bandwidth)
    print_rows(rows)
    total = {
        column: sum(row["count"] * row[column] for row in rows) for column in ("us", "floor_us")
    }
    print(f"all kernels of a step: {total['us']:.0f} µs, floor {total['floor_us']:.0f} µs")
    networks = network_times(images)
    for name, taken in networks.items():
        rate, share = len(images) / taken * 1000, total["floor_us"] / taken
        print(f"{name} network: {taken:.0f} µs, {rate:.0f} thousand images/s, {share:.0%} of floor")
    print(f"fused / plain: {networks['fused'] / networks['plain']:.2f}")
    result = {"batch": len(images), "bandwidth_tb_s": bandwidth, "torch": torch.__version__}
    return result | {"rows": rows, "sum": total, "network_us": networks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--bandwidth", type=float, default=4.8, help="TB/s; 4.8 is an H200's")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/kernels_gpu.json"))
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("the kernels are timed on a GPU, and torch sees none here")
    images = torch.randn(given.batch, 3, 32, 32, device="cuda")
    result = run(images.contiguous(memory_format=torch.channels_last), given.bandwidth)
    result["gpu"] = torch.cuda.get_device_name()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()

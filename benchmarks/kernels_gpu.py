"""The kernels of a ResNet-32's training step beside cuDNN and beside the memory floor, on one GPU.

    python benchmarks/kernels_gpu.py [--batch 256] [--bandwidth 4.8] [--out FILE]

Channels last, bfloat16. A convolution of ours holds the batch norm and ReLU before it and the
statistics of the one behind it; cuDNN's, in benchmark mode, is the convolution alone. The floor is
every map read or written once at the bandwidth given, in TB/s. Each is timed as twenty calls in a
CUDA graph, so launches cost nothing and small maps may stay in the cache. Last comes the whole
network, forward and backward, as one CUDA graph each. To tune: `wcdas/kernels/launches.py`.
"""

import argparse
import copy
import json
import statistics as averages
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcdas.backbones.resnet32 import ResNet32
from wcdas.kernels.batch_norm import statistics
from wcdas.kernels.convolution_forward import convolution
from wcdas.kernels.input_gradient import Normalised, Source, input_gradient
from wcdas.kernels.partial_sums import sum_rows
from wcdas.kernels.residual import residual
from wcdas.kernels.residual_network import fuse
from wcdas.kernels.weight_gradient import weight_gradient

CALLS = 20


@dataclass(frozen=True)
class Layer:
    """A convolution of the network; the second of a block has a batch norm before it."""

    in_channels: int
    channels: int
    stride: int
    size: int
    second: bool
    count: int

    @property
    def name(self) -> str:
        which = "second" if self.second else "first"
        return f"{self.in_channels} → {self.channels}, {self.size}², {which}"


LAYERS = [
    Layer(3, 16, 1, 32, False, 1),
    Layer(16, 16, 1, 32, False, 5),
    Layer(16, 16, 1, 32, True, 5),
    Layer(16, 32, 2, 32, False, 1),
    Layer(32, 32, 1, 16, False, 4),
    Layer(32, 32, 1, 16, True, 5),
    Layer(32, 64, 2, 16, False, 1),
    Layer(64, 64, 1, 8, False, 4),
    Layer(64, 64, 1, 8, True, 5),
]


def microseconds(work: Callable[[], Any], calls: int = CALLS) -> float:
    """The median over replays of a graph of `calls` calls, of one call."""
    stream = torch.cuda.Stream()
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
    return averages.median(times[3:])


class Bench:
    def __init__(self, device: str, batch: int, bandwidth: float) -> None:
        self.device, self.batch, self.bandwidth = device, batch, bandwidth
        self.rows: list[dict[str, Any]] = []

    def row(
        self, kernel: str, layer: Layer, ours: Callable[[], Any], maps: list[Tensor], peer: Any
    ) -> None:
        """Time one kernel that reads and writes `maps`, and what it is compared with, if any."""
        floor = sum(m.numel() * m.element_size() for m in maps) / self.bandwidth / 1e6
        taken = microseconds(ours)
        theirs = microseconds(peer) if peer else None
        ratio = f"{taken / theirs:8.2f}" if theirs else " " * 8
        beside = f"{theirs:9.1f}" if theirs else " " * 9
        print(
            f"{kernel:16}{layer.name:24}×{layer.count:<3}{taken:8.1f} µs{beside}{ratio}"
            f"{floor:8.1f}{floor / taken:8.0%}"
        )
        self.rows.append(
            {"kernel": kernel, "layer": layer.name, "count": layer.count, "us": taken}
            | {"cudnn_us": theirs, "floor_us": floor}
        )

    def map(self, size: int, channels: int) -> Tensor:
        shape = self.batch, size, size, channels
        return torch.randn(shape, device=self.device).bfloat16()

    def norm(self, channels: int) -> Tensor:
        return torch.rand(4, channels, device=self.device) + 0.5

    def layer(self, layer: Layer) -> None:
        stride, size = layer.stride, layer.size
        x, norm = self.map(size, layer.in_channels), self.norm(layer.in_channels)
        weight = torch.randn(9, layer.in_channels, layer.channels, device=self.device).bfloat16()
        gradient = self.map(size // stride, layer.channels)
        before = norm if layer.second else None
        y, measured = convolution(x, before, weight, stride)
        module = nn.BatchNorm2d(layer.channels).to(self.device)
        sums = torch.randn(2, layer.channels, device=self.device)
        output = Normalised(gradient, y, self.norm(layer.channels), sums)

        x_nchw, gradient_nchw = x.permute(0, 3, 1, 2), gradient.permute(0, 3, 1, 2)
        weight_oihw = weight.view(3, 3, *weight.shape[1:]).permute(3, 2, 0, 1)
        weight_oihw = weight_oihw.contiguous(memory_format=torch.channels_last)

        def cudnn_backward(by_input: bool) -> Tensor:
            mask = [by_input, not by_input, False]
            strides, ones, zeros = [stride, stride], [1, 1], [0, 0]
            return torch.ops.aten.convolution_backward(
                gradient_nchw, x_nchw, weight_oihw, None, strides, ones, ones, False, zeros, 1, mask
            )[1 - by_input]

        self.row(
            "forward",
            layer,
            lambda: convolution(x, before, weight, stride),
            [x, y],
            lambda: F.conv2d(x_nchw, weight_oihw, stride=stride, padding=1),
        )
        self.row(
            "statistics",
            layer,
            lambda: statistics(measured, module, module.weight, module.bias),
            [measured.partials],
            None,
        )
        if layer.in_channels != 3:
            source = (
                Source(x, norm) if layer.second else Source(self.map(size, x.shape[3]), norm, x)
            )
            shortcut = None if layer.second else self.map(size // stride, layer.channels)
            maps = [gradient, y, x, source.y] + ([x] if source.activation is not None else [])
            maps += [] if shortcut is None else [shortcut]
            _, partials = input_gradient(output, weight, stride, (size, size), source, shortcut)
            self.row(
                "input gradient",
                layer,
                lambda: input_gradient(output, weight, stride, (size, size), source, shortcut),
                maps,
                lambda: cudnn_backward(True),
            )
            self.row("two sums", layer, lambda: sum_rows(partials), [partials], None)
        self.row(
            "weight gradient",
            layer,
            lambda: weight_gradient(x, before, output, stride),
            [x, gradient, y],
            lambda: cudnn_backward(False),
        )
        if layer.second:
            self.row("end of a block", layer, lambda: residual(y, norm, x), [y, x, y], None)


def network_step(network: Any, images: Tensor) -> Callable[[], None]:
    def step() -> None:
        with torch.autocast(images.device.type, torch.bfloat16):
            feature_map = network.forward_map(images)
        feature_map.backward(torch.ones_like(feature_map))
        network.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--bandwidth", type=float, default=4.8, help="TB/s; 4.8 is an H200's")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/kernels_gpu.json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("the kernels are timed on a GPU, and torch sees none here")
    run("cuda", options.batch, options.bandwidth, options.out)


def run(device: str, batch: int, bandwidth: float, out: Path) -> None:
    torch.backends.cudnn.benchmark = True
    bench = Bench(device, batch, bandwidth)
    print(f"{'':44}{'ours':>11}{'cuDNN':>9}{'ratio':>8}{'floor':>8}{'share':>8}")
    for layer in LAYERS:
        bench.layer(layer)

    def total(column: str) -> float:
        return sum(row["count"] * (row[column] or 0.0) for row in bench.rows)

    plain = ResNet32().to(device)
    plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused = copy.deepcopy(plain)
    fuse(fused)
    images = torch.randn(batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    networks = {
        name: microseconds(network_step(network, images), calls=1)
        for name, network in {"plain": plain, "fused": fused}.items()
    }
    floor = total("floor_us")
    print(f"sum of all layers: {total('us'):.0f} µs, floor {floor:.0f} µs")
    for name, taken in networks.items():
        rate = batch / taken * 1000
        print(f"{name} network: {taken:.0f} µs, {rate:.0f} thousand images/s, {floor / taken:.0%}")
    print(f"fused / plain: {networks['fused'] / networks['plain']:.2f}")
    result = {"batch": batch, "bandwidth_tb_s": bandwidth, "torch": torch.__version__}
    result |= {"rows": bench.rows, "sum_us": total("us"), "floor_us": floor, "network_us": networks}
    if device == "cuda":
        result["gpu"] = torch.cuda.get_device_name()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    main()

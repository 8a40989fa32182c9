"""Two methods on the embedded long-tailed digits, side by side.

    python examples/compare.py

Softmax, and the default: WCDAS with the class prior in the loss; under two minutes on one core.
"""

import sys

import torch
from rich.console import Console

import wcdas
from wcdas.errors import InterruptedRunError
from wcdas.evaluation import result_table


def main() -> None:
    torch.set_num_threads(1)  # images of 8×8 pixels gain nothing from more
    console = Console(soft_wrap=True)
    runs = {}
    for method in ("softmax", "wcdas-prior"):
        try:
            runs[method] = wcdas.train("digits-lt", method, console=console)
        except InterruptedRunError as stop:
            sys.exit(str(stop))
        console.print()
    console.print("test accuracy in % by the number of training images, last epoch:")
    console.print(result_table({name: run.metrics for name, run in runs.items()}))
    console.print("\neverything else is in")
    for run in runs.values():
        console.print(f"  {run.path}: report.html, metrics.json, run.toml, model.safetensors")


if __name__ == "__main__":
    main()

"""Accuracy of each class against its training images, for some runs side by side.

    python examples/accuracy_by_class_size.py RUN RUN --out accuracy.svg

A line is the mean over a window of neighbouring classes, sorted by size.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

STYLES = (("#0072b2", "-"), ("#d55e00", "--"), ("#555555", ":"))  # told apart in grey too
WINDOW = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="run folders or their metrics.json")
    parser.add_argument("--out", type=Path, default=Path("accuracy.svg"))
    options = parser.parse_args()

    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for path, (color, line) in zip(options.runs, STYLES, strict=False):
        file = path / "metrics.json" if path.is_dir() else path
        metrics = json.loads(file.read_text(encoding="utf-8"))
        rows = [row for row in metrics["per_class"] if row["accuracy"] is not None]
        rows.sort(key=lambda row: -row["train_images"])
        accuracy = [100 * row["accuracy"] for row in rows]
        images = [row["train_images"] for row in rows]
        window = min(WINDOW, len(rows))
        places = range(len(rows) - window + 1)
        mean = [sum(accuracy[i : i + window]) / window for i in places]
        centre = [images[i + window // 2] for i in places]
        axes.scatter(images, accuracy, s=10, alpha=0.35, color=color)
        axes.plot(centre, mean, line, color=color, linewidth=2, label=metrics["method"])
    axes.set(xscale="log", xlabel="training images of the class", ylabel="test accuracy in %")
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(options.out)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()

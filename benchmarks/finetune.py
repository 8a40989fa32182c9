"""Fine-tuning on one's own pictures: `wcdas train FOLDER` beside a plain script with timm.

python benchmarks/finetune.py --data DIR [--weights FILE] [--datasets cifar100-lt,cifar10-lt]
    [--epochs 20] [--seeds 3] [--parallel 4] [--only default,scripts] [--set KEY=VALUE …]
    [--validation] [--share 0.25] [--speed] [--out FILE]

CIFAR-LT is written out as folders of JPEG files at 128 pixels, and `tf_efficientnet_lite0`, trained
on ImageNet, is fine-tuned for equally many epochs:

- "script": what people write, `ImageFolder`, RandomResizedCrop to 128 pixels and flip, AdamW, a
  cosine, cross-entropy; with the class prior in the loss ("script prior": logit adjustment); with a
  class-balanced sampler ("script balanced");
- "default": `wcdas train`, which chooses the rest; "linear" and "cosine": it with these heads;
- "frozen", "frozen linear", "frozen cosine": heads on features that are computed once.

The last epoch is reported: balanced accuracy, and that of classes with few training images. A line
for each run goes to --out, and what is there already with the same options is not run again.
`--speed` trains one at a time and reports images per second without the first epoch. `--validation`
measures on training images that the long tail leaves out, 500 of a class at most: by these,
defaults are chosen. `--share` trains on a part of every class, two images at least, for machines
without a GPU.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from timm.data.config import resolve_model_data_config
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import wcdas
from wcdas.data.dataset import ArrayImages, Dataset, Split
from wcdas.evaluation import evaluate

BACKBONE, SIZE, BATCH, SCRIPT_LR = "tf_efficientnet_lite0", 128, 64, 3e-4
LEFT_OUT = 500
SCRIPTS = ["script", "script prior", "script balanced"]
HEADS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"head.name": "linear"},
    "cosine": {"head.name": "cosine"},
    "frozen": {"frozen": True},
    "frozen linear": {"frozen": True, "head.name": "linear"},
    "frozen cosine": {"frozen": True, "head.name": "cosine"},
}


def write_folder(dataset: str, root: Path, folder: Path, validation: bool, share: float) -> None:
    """Write a dataset, or the first images of every class, as folders of JPEG files, once."""
    if (done := folder / "done").exists():
        return
    opened = wcdas.open_dataset(dataset, root=root)
    test = left_out(dataset, root, opened) if validation else opened.test

    def write(item: tuple[str, ArrayImages, int]) -> None:
        part, split, i = item
        to = folder / "images" / part / opened.class_names[int(split.labels[i])]
        to.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(split.pixels[i].permute(1, 2, 0).numpy())
        image.resize((SIZE, SIZE), Image.Resampling.BILINEAR).save(to / f"{i}.jpg", quality=95)

    most = (opened.class_counts * share).round().clamp(min=2)
    labels = opened.train.labels
    first = [i for i, c in enumerate(labels.tolist()) if (labels[:i] == c).sum() < most[c]]
    parts = {"train": opened.train.subset(torch.tensor(first)), "test": test}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part, split in parts.items():
            assert isinstance(split, ArrayImages)
            list(pool.map(write, [(part, split, i) for i in range(len(split))]))
    done.touch()


def left_out(dataset: str, root: Path, long_tailed: Dataset) -> Split:
    """Return training images that the long tail leaves out, 500 of a class at most; the most
    frequent classes have fewer."""
    everything = wcdas.open_dataset(dataset, root=root, imbalance=10).train
    used = {long_tailed.train.content(i) for i in range(len(long_tailed.train))}
    free = [i for i in range(len(everything)) if everything.content(i) not in used]
    labels = everything.labels[free]
    first = [(labels[:k] == labels[k]).sum() < LEFT_OUT for k in range(len(free))]
    return everything.subset(torch.tensor(free)[torch.tensor(first)])


def run_script(kind: str, folder: Path, weights: str, epochs: int, seed: int, workers: int) -> Any:
    """The plain script: fine-tune, then measure; returns metrics and images per second."""
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = {"file": weights} if weights else None
    model: Any = timm.create_model(BACKBONE, pretrained=True, pretrained_cfg_overlay=given)
    config = resolve_model_data_config(model)
    last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    last += [v2.Normalize(config["mean"], config["std"])]
    crop = [v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()]
    train = ImageFolder(folder / "train", v2.Compose([*crop, *last]))
    centre = [v2.Resize(SIZE * 256 // 224), v2.CenterCrop(SIZE)]
    test = ImageFolder(folder / "test", v2.Compose([*centre, *last]))
    of_train = torch.tensor([train.class_to_idx[name] for name in test.classes])
    model.reset_classifier(len(train.classes))
    model.to(device)
    counts = torch.bincount(torch.tensor(train.targets))
    balanced = kind == "script balanced"
    each = (1 / counts.double())[train.targets]
    sampler = WeightedRandomSampler(each.tolist(), len(train)) if balanced else None
    loading: dict[str, Any] = {
        "num_workers": workers,
        "pin_memory": True,
        "persistent_workers": workers > 0,
    }
    batches = DataLoader(train, BATCH, sampler is None, sampler, drop_last=True, **loading)
    log_prior = (counts / counts.sum()).log().to(device) * (kind == "script prior")
    optimizer = torch.optim.AdamW(model.parameters(), lr=SCRIPT_LR, weight_decay=0.05)
    steps = epochs * len(batches)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    seconds = []
    for _ in range(epochs):
        model.train()
        began = time.monotonic()
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            with torch.autocast(device, torch.bfloat16):
                logits = model(images)
            loss = nn.functional.cross_entropy(logits.float() + log_prior, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cosine.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
    model.eval()
    logits, labels = [], []
    with torch.no_grad():
        for images, truth in DataLoader(test, 256, num_workers=workers):
            logits.append(model(images.to(device)).float().cpu())
            labels.append(of_train[truth])
    metrics = evaluate(torch.cat(logits), torch.cat(labels), counts, train.classes)
    return metrics, len(batches) * BATCH / _usual(seconds)


def run_wcdas(
    kind: str,
    folder: Path,
    weights: str,
    epochs: int,
    seed: int,
    workers: int,
    own: list[str],
    out: Path,
) -> Any:
    settings: dict[str, Any] = {
        "backbone.name": BACKBONE,
        "backbone.weights": weights or "pretrained",
        "evaluate_every": epochs,
        **HEADS[kind],
    }
    if "frozen" not in HEADS[kind]:
        settings |= {"frozen": False, "epochs": epochs}
    run = wcdas.train(
        folder,
        settings=[*(f"{key}={json.dumps(value)}" for key, value in settings.items()), *own],
        seed=seed,
        out=out,
        resume=out.exists(),
        report=False,
        callbacks=(),
        workers=workers,
    )
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    info = tomllib.loads((run.path / "run.toml").read_text())["info"]
    seen = sum(info["class_counts"]) - run.metrics["held_out"]
    return run.metrics, seen / _usual([line["seconds"] for line in lines])


def _usual(seconds: list[float]) -> float:
    return statistics.median(seconds[1:] or seconds)


def job(arguments: argparse.Namespace, folder: Path, dataset: str, kind: str, seed: int) -> Any:
    """Run one, and return its line."""
    began = time.monotonic()
    given = (kind, folder, arguments.weights, arguments.epochs, seed, arguments.workers)
    if kind in SCRIPTS:
        metrics, speed = run_script(*given)
    else:
        set_otherwise = "".join(f"-{setting.replace('/', '-')}" for setting in arguments.set)
        name = f"{kind.replace(' ', '-')}-{arguments.epochs}{set_otherwise}-s{seed}"
        out = folder.parent / "runs" / name
        metrics, speed = run_wcdas(*given, arguments.set, out)
    shown = {key: metrics[key] for key in ("top1", "balanced_accuracy", "many", "medium", "few")}
    return {
        "dataset": dataset,
        "kind": kind,
        "seed": seed,
        **options(arguments),
        **{key: value and round(100 * value, 2) for key, value in shown.items()},
        "images_per_second": round(speed),
        "seconds": round(time.monotonic() - began, 1),
    }


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what every run of a call has in common."""
    return {name: getattr(arguments, name) for name in ("epochs", "share", "validation", "set")}


def folder_of(dataset: str, arguments: argparse.Namespace) -> Path:
    """Return where a dataset, or that part of it, is written to."""
    part = "-left-out" * arguments.validation
    part += f"-share-{arguments.share:g}" * (arguments.share != 1)
    return Path(arguments.folder / f"{dataset}{part}")


def table(lines: list[dict[str, Any]]) -> str:
    """Mean ± standard deviation over the seeds, a row for each way."""
    rows = [f"{'dataset':12} {'':18} {'balanced':>12} {'many':>12} {'medium':>12} {'few':>12}"]
    for dataset, kind in dict.fromkeys((line["dataset"], line["kind"]) for line in lines):
        own = [line for line in lines if (line["dataset"], line["kind"]) == (dataset, kind)]
        cells = []
        for key in ("balanced_accuracy", "many", "medium", "few"):
            values = [line[key] for line in own if line[key] is not None]
            spread = statistics.stdev(values) if len(values) > 1 else math.nan
            cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}" if values else "–")
        rows.append(f"{dataset:12} {kind:18} " + " ".join(f"{cell:>12}" for cell in cells))
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, type=Path, help="the root of the CIFAR data")
    parser.add_argument("--weights", default="", help="a file; timm's own without it")
    parser.add_argument("--datasets", default="cifar100-lt,cifar10-lt")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("--workers", type=int, default=4, help="processes that decode, a run")
    parser.add_argument("--only", default=",".join(["default", "linear", "cosine", "scripts"]))
    parser.add_argument("--set", nargs="*", default=[], help="settings of wcdas train")
    parser.add_argument("--validation", action="store_true", help="measure on images left out")
    parser.add_argument("--share", type=float, default=1.0, help="of the images of a class")
    parser.add_argument("--speed", action="store_true", help="one run after another, one seed")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/wcdas-finetune"), help="files")
    parser.add_argument("--out", type=Path, default=Path("finetune.jsonl"))
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        dataset, kind, seed = arguments.job
        folder = folder_of(dataset, arguments) / "images"
        print(json.dumps(job(arguments, folder, dataset, kind, int(seed))))
        return
    names = [kind.strip() for kind in arguments.only.split(",")]
    kinds = [k for name in names for k in (SCRIPTS if name == "scripts" else [name])]
    if unknown := [kind for kind in kinds if kind not in (*SCRIPTS, *HEADS)]:
        parser.error(f"unknown in --only: {unknown[0]}; expected {', '.join((*SCRIPTS, *HEADS))}")
    datasets = arguments.datasets.split(",")
    for dataset in datasets:
        folder = folder_of(dataset, arguments)
        write_folder(dataset, arguments.data, folder, arguments.validation, arguments.share)
    arguments.out.touch()
    every = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    lines = [line for line in every if line.items() >= options(arguments).items()]
    done = {(line["dataset"], line["kind"], line["seed"]) for line in lines}
    seeds = range(1 if arguments.speed else arguments.seeds)
    jobs = [(d, kind, seed) for seed in seeds for d in datasets for kind in kinds]

    at_a_time = 1 if arguments.speed else arguments.parallel
    threads = max(1, (os.cpu_count() or 1) // at_a_time)
    own = {"OMP_NUM_THREADS": str(threads)} | os.environ  # runs side by side share the cores

    def start(item: tuple[str, str, int]) -> None:
        if item in done:
            return
        command = [sys.executable, *sys.argv, "--job", *map(str, item)]
        ended = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
        text = ended.stdout.strip().splitlines()[-1:] or [ended.stderr[-2000:]]
        print(text[0], flush=True)
        if ended.returncode == 0:
            lines.append(json.loads(text[0]))
            with arguments.out.open("a") as file:
                file.write(text[0] + "\n")

    with ThreadPoolExecutor(at_a_time) as pool:
        list(pool.map(start, jobs))
    if arguments.speed:
        for line in lines:
            print(
                f"{line['dataset']:12} {line['kind']:18} {line['images_per_second']:>8,} images/s"
            )
    else:
        print(table(sorted(lines, key=lambda line: line["dataset"])))


if __name__ == "__main__":
    main()

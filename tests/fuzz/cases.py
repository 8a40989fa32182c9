"""Real files, folders and settings, changed at random, and the one thing asked of every command on
them: it does its work, or says in one line why not.

By hand, without end: `python tests/fuzz/cases.py --cases 2000 --seed 1`.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
import torch
from PIL import Image

import wcdas
from wcdas.run.spec import Config, Stage, keys

SECONDS, MEGABYTES = 120, 1_000  # that a case has; the first is for hangs
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["wcdas.api", "wcdas.cli", "wcdas.report", "torch._dynamo"])

RUN_FILES = ["run.toml", "log.jsonl", "metrics.json", "report.json", "model.safetensors"]
ODD = [None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, 10**12, "", "x", "é\0\n", [], {}, [[]]]
ODD += [
    [1, 2],
    {"x": 1},
    "nan",
    "1",
    float("nan"),
    float("inf"),
    "../..",
    "/dev/zero",
    "pretrained",
]


class Outcome(NamedTuple):
    """What came of a case: `wrong` is empty where it ended as it may."""

    command: list[str]
    status: int | None
    wrong: str


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip, insert or repeat."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 2:
                data = data[:at] + rng.randbytes(rng.choice([1, 8, 300])) + data[at:]
            case 3:
                data = data[:at] + data[rng.randrange(len(data) + 1) :]
            case 4:
                data = rng.choice([b"", b"\0" * 100, b"{", b"[" * 5000, b"null", rng.randbytes(64)])
    return data


def changed_tree(value: Any, rng: random.Random) -> Any:
    """Put something odd somewhere into a table or list, or take something out."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if rng.random() < 0.15:
            del value[key]
        else:
            value[key] = changed_tree(value[key], rng)
        return value
    return rng.choice(ODD)


def change_file(path: Path, rng: random.Random) -> None:
    """Change a file by its bytes, or by what it holds; or put something else in its place."""
    kind = rng.random()
    if kind < 0.08:
        path.unlink()
        rng.choice([os.mkfifo, Path.mkdir, lambda p: p.symlink_to("/dev/zero"), lambda p: None])(
            path
        )
    elif kind < 0.5 or path.suffix not in (".json", ".jsonl", ".toml"):
        path.write_bytes(changed_bytes(path.read_bytes(), rng))
    elif path.suffix == ".toml":
        table = changed_tree(tomllib.loads(path.read_text()), rng)
        try:
            path.write_text(tomli_w.dumps(table))
        except (TypeError, ValueError, AttributeError):  # what TOML cannot hold
            path.write_bytes(changed_bytes(path.read_bytes(), rng))
    else:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(changed_tree(json.loads(lines[at]), rng))
        path.write_text("\n".join(lines) + "\n")


def change_model(path: Path, rng: random.Random) -> None:
    """Change what a model's file says of itself, its tensors left as they are."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["wcdas"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for _ in range(rng.randint(0, 2)):
        facts = changed_tree(facts, rng)
    if rng.random() < 0.3:
        name = rng.choice(list(tensors))
        odd = [
            tensors[name] * float("nan"),
            tensors[name].reshape(-1)[:0],
            tensors[name].double().reshape(-1),
        ]
        tensors[name] = rng.choice(odd).contiguous()
    save_file(tensors, path, {"wcdas": json.dumps(facts)})


class Ground:
    """The real things that are changed: a finished run, pictures, tables, features."""

    def __init__(self, root: Path) -> None:
        self.root = root
        options: dict[str, Any] = {"device": "cpu", "callbacks": ()}
        settings = {"epochs": 1, "backbone.name": "resnet8"}
        wcdas.train("digits-lt", settings=settings, out=root / "run", **options)
        numbers = np.random.RandomState(0)
        rows = []
        for split, count in (("train", 4), ("test", 2)):
            for c in range(3):
                (root / "pictures" / split / str(c)).mkdir(parents=True)
                for i in range(count):
                    image = Image.fromarray(numbers.randint(0, 256, (24, 24, 3), np.uint8))
                    file = root / "pictures" / split / str(c) / f"{i}.{('png', 'jpg')[i % 2]}"
                    image.save(file)
                    rows.append((split, file.read_bytes(), c, file.relative_to(root / "pictures")))
        (root / "table").mkdir()
        for split in ("train", "test"):
            own = [{"image": {"bytes": b}, "label": c} for s, b, c, _ in rows if s == split]
            pq.write_table(pa.Table.from_pylist(own), root / "table" / f"{split}.parquet")
            lines = [f"{path} {c}" for s, _, c, path in rows if s == split]
            (root / "pictures" / f"{split}.txt").write_text("\n".join(lines))
        (root / "vectors").mkdir()
        np.save(root / "vectors" / "x.npy", numbers.rand(40, 6).astype("float32"))
        np.save(root / "vectors" / "x_labels.npy", np.arange(40) % 4)

    def case(self, kind: str, rng: random.Random, here: Path) -> list[str]:
        """Make a case in an empty folder, and return its command."""
        return KINDS[kind](self, rng, here)


def damaged_run(ground: Ground, rng: random.Random, here: Path) -> list[str]:
    run = Path(shutil.copytree(ground.root / "run", here / "run"))
    names = [*RUN_FILES, *(str(p.relative_to(run)) for p in run.glob("checkpoint/*"))]
    for name in rng.sample(names, rng.choice([1, 1, 2])):
        change_file(run / name, rng)
    return of_run(run, rng)


def odd_model(ground: Ground, rng: random.Random, here: Path) -> list[str]:
    run = Path(shutil.copytree(ground.root / "run", here / "run"))
    change_model(run / "model.safetensors", rng)
    return of_run(run / "model.safetensors" if rng.random() < 0.5 else run, rng)


def of_run(run: Path, rng: random.Random) -> list[str]:
    picture = run.parent / "x.png"
    Image.new("L", (8, 8), 100).save(picture)
    commands = [
        ["predict", str(run), str(picture), "--format", rng.choice(["text", "csv", "jsonl"])],
        ["evaluate", str(run), "--device", "cpu", "--workers", "0", "--data", "digits-lt"],
        ["export", str(run), "--format", "card", "--out", str(run.parent / "card.md")],
    ]
    if run.is_dir():
        commands += [
            ["report", str(run)],
            ["train", "--out", str(run), "--resume", "--device", "cpu", "--log", "none"],
            ["evaluate", str(run), "--device", "cpu", "--workers", "0"],
        ]
    return rng.choice(commands)


def odd_pictures(ground: Ground, rng: random.Random, here: Path) -> list[str]:
    shutil.copytree(ground.root / "pictures", here / "pictures")
    files = sorted(path for path in (here / "pictures").rglob("*") if path.is_file())
    for path in rng.sample(files, rng.randint(1, 3)):
        change_file(path, rng)
    data = rng.choice(["pictures", "pictures/train.txt", "pictures/train"])
    return of_data(here / data, rng)


def odd_table(ground: Ground, rng: random.Random, here: Path) -> list[str]:
    source = rng.choice(["table", "vectors"])
    shutil.copytree(ground.root / source, here / source)
    change_file(rng.choice(sorted((here / source).iterdir())), rng)
    return of_data(here / (source if source == "table" else "vectors/x.npy"), rng)


def of_data(data: Path, rng: random.Random) -> list[str]:
    skip = ["--skip-bad"] * (rng.random() < 0.4)
    if rng.random() < 0.7:
        return ["check", str(data), *skip]
    settings = ["epochs=1", "backbone.weights=", "backbone.name=resnet8", "batch_size=4"]
    if data.suffix == ".npy":
        settings = ["epochs=1"]
    quick = ["--device", "cpu", "--workers", "0", "--log", "none", "--no-report"]
    return ["train", str(data), *quick, *skip, "--set", *settings]


def odd_settings(ground: Ground, rng: random.Random, here: Path) -> list[str]:
    shutil.copytree(ground.root / "vectors", here / "vectors")
    known = [*keys(Config), *(f"stages.representation.{key}" for key in keys(Stage))]
    known += ["epochs", "lr", "data.classes", "data.labels", "head.name", "head.scale", "unknown"]
    given = []
    for _ in range(rng.randint(1, 3)):
        value = rng.choice([*map(repr, ODD), *map(json.dumps, ODD), "wcdas", "resnet8", "none"])
        given.append(f"{rng.choice(known)}={value}".replace("\0", "\\0"))
    quick = ["--device", "cpu", "--workers", "0", "--log", "none", "--no-report"]
    # The first settings keep the case short where the odd ones are taken.
    return ["train", str(here / "vectors" / "x.npy"), *quick, "--set", "epochs=1", *given]


def odd_recipe(ground: Ground, rng: random.Random, here: Path) -> list[str]:
    shutil.copytree(ground.root / "vectors", here / "vectors")
    recipe = here / "recipe.toml"
    table = {"batch_size": 8, "head": {"name": "cosine"}, "stages": {"representation": {"lr": 0.1}}}
    recipe.write_text(tomli_w.dumps(table))
    change_file(recipe, rng)
    quick = ["--device", "cpu", "--workers", "0", "--log", "none", "--no-report"]
    data = str(here / "vectors" / "x.npy")
    return ["train", data, "--recipe", str(recipe), *quick, "--set", "epochs=1"]


KINDS: dict[str, Callable[[Ground, random.Random, Path], list[str]]] = {
    "damaged run": damaged_run,
    "odd model": odd_model,
    "odd pictures": odd_pictures,
    "odd table": odd_table,
    "odd settings": odd_settings,
    "odd recipe": odd_recipe,
}


def run_command(command: list[str], here: Path) -> Outcome:
    """Do a command in a process of its own, and look at how it ended."""
    process = CONTEXT.Process(target=_in_child, args=(command, here))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return Outcome(command, None, f"hangs: no end within {SECONDS} s")
    status = process.exitcode
    said = (here / "stderr").read_text(errors="replace")
    told = (here / "stdout").read_text(errors="replace") + said
    lines = [line for line in said.splitlines() if line.startswith("wcdas: ")]
    memory = int((here / "memory").read_text()) if (here / "memory").exists() else 0
    wrong = ""
    if "Traceback" in told:
        wrong = f"a traceback: {told[-1500:]}"
    elif status not in (0, 1, 2):
        wrong = f"status {status}"
    elif status and len(lines) != 1:
        wrong = f"status {status} with {len(lines)} lines: {said[-500:]!r}"
    elif memory > MEGABYTES:
        wrong = f"{memory:,} MB"
    return Outcome(command, status, wrong)


def _in_child(command: list[str], here: Path) -> None:
    """In a process that was forked: what it says goes to files."""
    from wcdas import cli

    os.chdir(here)
    torch.set_num_threads(1)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(here / name, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["wcdas", *command]
    try:
        cli.main()
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
        (here / "memory").write_text(str(used))


def fuzz(ground: Ground, kind: str, seed: int) -> Outcome:
    """Do the case of a seed."""
    rng = random.Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        return run_command(ground.case(kind, rng, Path(folder)), Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description="Change real files at random; report what breaks.")
    parser.add_argument("--cases", type=int, default=2000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        for i in range(arguments.cases):
            kind, seed = kinds[i % len(kinds)], arguments.seed + i // len(kinds)
            outcome = fuzz(ground, kind, seed)
            counts["wrong" if outcome.wrong else f"status {outcome.status}"] += 1
            if outcome.wrong:
                print(f"{kind}, seed {seed}: {outcome.wrong}\n  {' '.join(outcome.command)}")
            if (i + 1) % 100 == 0:
                print(f"{i + 1} cases: {dict(counts)}", flush=True)
    print(f"{arguments.cases} cases: {dict(counts)}")
    sys.exit(bool(counts["wrong"]))


if __name__ == "__main__":
    main()

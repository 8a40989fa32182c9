"""Runs that are killed at random moments and gone on with until they are done.

    python benchmarks/kills.py [--kills 200] [--seed 0]

A run of every kind is first left alone. Then each is killed again and again, by SIGKILL, SIGTERM,
SIGINT or SIGHUP, the process alone, all that it started or one of its ranks, at a moment drawn
evenly over the time that it takes, and gone on with by the command that it or its folder asks for.
What a signal must not leave: another exit status than its own, more or less than one line that says
how to go on, a process, a model whose bytes are not those of the run left alone. The last table
counts them. A signal in the first moments of Python itself, which listens to none, is told apart.
"""

import argparse
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from loader_cpu import write_pictures

WCDAS = [sys.executable, "-m", "wcdas"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
QUICK = ["--no-report", "--device", "cpu"]
SMALL = ["--set", "epochs=3", "backbone.name=resnet8", "backbone.weights="]
GRACE = 120  # seconds that a process may take to end, on a busy machine
MARK = {"KILLS": str(os.getpid())}  # in the environment of all that a command starts


@dataclass
class Kind:
    """A command to kill; `again` goes on with it."""

    name: str
    begin: list[str]
    again: list[str]
    seconds: float = 0.0
    models: dict[str, bytes] = field(default_factory=dict)

    @property
    def ranks(self) -> bool:
        return self.begin[: len(TORCHRUN)] == TORCHRUN


def kinds(place: Path) -> list[Kind]:
    """Return the commands, each without its folder, which is what comes last."""
    pictures = place / "pictures"
    write_pictures(pictures, 60, 40)
    two = [*TORCHRUN, "-m", "--", "wcdas"]
    sweep = ["sweep", "--methods", "softmax", "--seeds", "2", *QUICK]
    sweep_on, beside = ["sweep", "--resume", *QUICK], ["--parallel", "2"]
    train = ["train", "--method", "softmax", *QUICK]
    on_pictures = [str(pictures), "--workers", "1", *SMALL]

    def kind(name: str, program: list[str], *begin: str, again: list[str]) -> Kind:
        return Kind(name, [*program, *begin, "--out"], [*program, *again, "--out"])

    return [
        kind("train", WCDAS, *train, *SMALL, again=["train", "--resume", *QUICK]),
        kind("pictures", WCDAS, *train, *on_pictures, again=["train", "--resume", *QUICK]),
        kind("sweep", WCDAS, *sweep, *SMALL, again=sweep_on),
        kind("sweep in processes", WCDAS, *sweep, *beside, *SMALL, again=[*sweep_on, *beside]),
        kind("two ranks", two, *train, *SMALL, again=["train", "--resume", *QUICK]),
    ]


@contextmanager
def started(command: list[str], said: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command as a group of its own; nothing of it is left at the end."""
    environment = os.environ | MARK | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with said.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=file, start_new_session=True
        )
    try:
        yield process
    finally:
        for pid in left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def left() -> dict[int, str]:
    """Return the processes of a command that have not ended, in whatever session, and the rank of
    each that is one of several."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # somebody else's, or it ended meanwhile
            text = file.read_text(errors="replace")
            environment = dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
            if environment.items() >= MARK.items():
                found[int(file.parent.name)] = environment.get("RANK", "")
    return found


def is_early(pid: int) -> bool:
    """Whether a process does not listen yet, as Python before it runs any code of ours: PyTorch
    comes later, and Python by itself leaves SIGTERM to the system."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        loaded = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt", "SigIgn"))]
    return "libtorch" not in loaded and not any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)


def wait_for_all() -> bool:
    """Whether all processes of a command end."""
    end = time.monotonic() + GRACE
    while left() and time.monotonic() < end:
        time.sleep(0.05)
    return not left()


def command_for(kind: Kind, folder: Path) -> list[str]:
    """Return what goes on with a folder, as the message of a run says it."""
    begun = any((folder / name).exists() for name in ("run.toml", "sweep.toml"))
    return [*(kind.again if begun else kind.begin), str(folder)]


def models_in(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("model.safetensors"))}
    return {name: path.read_bytes() for name, path in found.items()}


def kill(kind: Kind, folder: Path, draw: random.Random, said: Path) -> tuple[str, list[str]]:
    """Go on with a run and kill it; return how, and what was wrong with its end."""
    number = draw.choice(SIGNALS)
    whom = draw.choice(["process", "group", *(["rank"] if kind.ranks else [])])
    wait = draw.uniform(0, kind.seconds)
    how = f"{number.name} to the {whom}"
    with started(command_for(kind, folder), said) as process:
        try:
            process.wait(wait)
            return "done before", []
        except subprocess.TimeoutExpired:
            pass
        there = left()
        speaks = [pid for pid in there if there[pid] == "0"] if kind.ranks else [process.pid]
        early = number != signal.SIGKILL and any(map(is_early, speaks))
        several = [pid for pid, rank in there.items() if rank]
        chosen = list(there) if whom == "group" else [process.pid]
        if whom == "rank" and several:
            chosen = [draw.choice(several)]
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        wrong = [] if wait_for_all() else ["processes left"]
        status = process.wait() if not wrong else None
    text = said.read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("wcdas: ")]
    if early and not lines and (kind.ranks or status == -number):
        return f"{how} before it listens", wrong
    if status == 0 or models_in(folder) == kind.models:  # it was done already
        return how, wrong
    if not speaks or (number == signal.SIGKILL and speaks[0] in chosen):
        return how, wrong
    if len(lines) != 1 or not re.search(r"go on with|same command|whole", lines[0]):
        wrong.append(f"{len(lines)} lines")
    if not kind.ranks:  # torchrun says and returns what it likes
        if text.count("\n") > len(lines):
            wrong.append("more said")
        if status != 128 + number:
            wrong.append(f"status {status}")
    return how, wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="of moments, signals and kinds")
    parser.add_argument("--only", default="", help="kinds with this in their name")
    given = parser.parse_args()
    draw, counts = random.Random(given.seed), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as place:
        said = Path(place) / "said"
        chosen = [kind for kind in kinds(Path(place)) if given.only in kind.name]
        for kind in chosen:
            alone, began = Path(place) / f"{kind.name} alone", time.monotonic()
            with started([*kind.begin, str(alone)], said) as process:
                if process.wait():
                    sys.exit(f"{kind.name} failed: {said.read_text()}")
            kind.seconds, kind.models = time.monotonic() - began, models_in(alone)
            print(f"{kind.name}: {kind.seconds:.1f} s, {len(kind.models)} models", flush=True)
        done, number = 0, 0
        while done < given.kills:
            kind, number = chosen[number % len(chosen)], number + 1
            folder = Path(place) / f"killed {number}"
            for _ in range(min(draw.randint(1, 4), given.kills - done)):
                how, wrong = kill(kind, folder, draw, said)
                if how == "done before":
                    break
                done += 1
                counts[kind.name, how] += 1
                for problem in wrong:
                    counts[kind.name, problem] += 1
                print(f"{done}/{given.kills} {kind.name}: {how} {'; '.join(wrong)}", flush=True)
                if wrong:
                    print(shlex.join(command_for(kind, folder)), said.read_text(), flush=True)
            with started(command_for(kind, folder), said) as process:
                status = process.wait()
            same = status == 0 and models_in(folder) == kind.models
            counts[kind.name, "the same in the end" if same else "another end"] += 1
            if not same:
                print(f"{kind.name}: another end, status {status}", said.read_text(), flush=True)
        print()
        for (name, what), count in sorted(counts.items()):
            print(f"{name:20}{what:28}{count:6}")


if __name__ == "__main__":
    main()

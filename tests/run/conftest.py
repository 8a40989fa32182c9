"""Real runs for the tests: on the digits, and on their pixels as features."""

import json
import multiprocessing
import runpy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch.distributed import TCPStore

from wcdas.data import Dataset, FeatureVectors, open_dataset
from wcdas.methods import METHODS
from wcdas.processes import Ranks
from wcdas.run.build import build_run
from wcdas.run.folder import RunFolder
from wcdas.run.loop import Loop
from wcdas.run.spec import build

CHILD = Path(__file__).parents[1] / "child.py"
NEVER = 1e9
NOTHING = ("", 0, 0)


class Child:
    """A process that runs the command line."""

    def __init__(self, arguments: list[str], output: Path, *options: object) -> None:
        context = multiprocessing.get_context("forkserver")
        given = {"given": (arguments, str(output), *options)}
        self.output = output
        output.touch()
        self.process = context.Process(target=runpy.run_path, args=(str(CHILD), given, "__main__"))
        self.process.start()

    def wait_for(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self.process.is_alive(), f"ended too early: {self.output.read_text()}"
            time.sleep(0.002)

    def status(self) -> int | None:
        self.process.join(600)  # None, if it hangs
        return self.process.exitcode


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Start the command line in a process: start("train", "--out", …, checkpoint_seconds=0).

    `happens` is what happens to it: see `child.py`.
    """
    children: list[Child] = []

    def started(
        *arguments: object,
        checkpoint_seconds: float = NEVER,
        happens: tuple[Any, ...] = NOTHING,
        environment: dict[str, str] | None = None,
    ) -> Child:
        output = tmp_path / f"output-{len(children)}"
        words = [str(a) for a in arguments]
        children.append(Child(words, output, checkpoint_seconds, happens, environment or {}))
        return children[-1]

    yield started
    for child in children:
        child.process.kill()
        child.process.join()


def tell(port: int, world: int = 2) -> list[dict[str, str]]:
    """What torchrun tells processes that meet at a port."""
    all_of_them = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    all_of_them |= {"WORLD_SIZE": str(world), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    return [all_of_them | {"RANK": str(i), "LOCAL_RANK": str(i)} for i in range(world)]


@pytest.fixture
def told() -> Callable[..., list[dict[str, str]]]:
    return tell


@pytest.fixture
def meeting() -> Callable[..., list[dict[str, str]]]:
    """What torchrun tells processes, which meet at a store of this one."""
    stores: list[TCPStore] = []

    def open_store(world: int = 2) -> list[dict[str, str]]:
        stores.append(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        return tell(stores[-1].port, world)

    return open_store


@pytest.fixture
def several_ranks(
    start: Callable[..., Child], meeting: Callable[..., list[dict[str, str]]]
) -> Callable[..., list[Child]]:
    """Starts processes with what torchrun tells its own."""

    def run(
        world: int, *arguments: object, environment: dict[str, str] | None = None, **options: Any
    ) -> list[Child]:
        command = ("train", "--no-report", *arguments)
        return [
            start(*command, environment=rank | (environment or {}), **options)
            for rank in meeting(world)
        ]

    return run


@pytest.fixture
def two_ranks(several_ranks: Callable[..., list[Child]]) -> Callable[..., list[Child]]:
    return partial(several_ranks, 2)


class Written:
    """What a run has left in its folder."""

    @staticmethod
    def log(run: Path) -> list[dict[str, Any]]:
        """The whole lines of a log, without the times."""
        file = run / "log.jsonl"
        text = file.read_text() if file.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]
        return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]

    @staticmethod
    def assert_same(run: Path, other: Path) -> None:
        """Bit for bit the same model and metrics, and the same log apart from times."""
        assert Written.log(run) == Written.log(other)
        for name in ("metrics.json", "model.safetensors"):
            assert (run / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def digits() -> Dataset:
    return open_dataset("digits-lt")


@pytest.fixture
def small_vit(tmp_path: Path) -> str:
    """Weights of a small transformer for the digits, as they are drawn."""
    torch.manual_seed(0)
    network = timm.create_model("test_vit", num_classes=0, in_chans=1, img_size=32)
    save_file(network.state_dict(), tmp_path / "vit.safetensors")
    return str(tmp_path / "vit.safetensors")


@pytest.fixture
def make_loop(tmp_path: Path, digits: Dataset) -> Callable[..., Loop]:
    """The loop of a run on the digits, or on their pixels where the backbone is `identity`."""

    def made(
        head: str = "linear",
        backbone: str = "resnet32",
        dataset: Dataset | None = None,
        holdout: float = 0.0,
        seed: int = 0,
        neck: str = "none",
        method: str = "softmax",
        settings: dict[str, Any] | None = None,
        **stages: dict[str, Any],
    ) -> Loop:
        data = dataset or (pixels_as_features(digits) if backbone == "identity" else digits)
        table = {
            "method": method,
            "seed": seed,
            "data": {},
            "input_size": data.input_size,
            "backbone": {"name": backbone},
            "head": {"name": head},
            "neck": {"name": neck},
            "augment": {"flip": False},
            "calibration": {"holdout": holdout},
            "selection": METHODS[method].defaults.get("selection", {}),
            "options": dict(METHODS[method].options),
            "stages": {n: {"batch_size": 32} | stage for n, stage in stages.items()},
        } | (settings or {})
        folder = RunFolder(tmp_path / "run")
        folder.create(table)
        ranks = Ranks(0, 1, torch.device("cpu"))
        return Loop(build_run(build(table), METHODS[method], data, folder, ranks, workers=0))

    return made


def pixels_as_features(digits: Dataset) -> Dataset:
    splits = {
        name: FeatureVectors(split.pixels.flatten(1) / 255, split.labels, name)
        for name, split in (("train", digits.train), ("test", digits.test))
    }
    return replace(digits, input_size=0, channels=64, **splits)

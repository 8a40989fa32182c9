"""Real images cut from scikit-learn's photographs, its digits as features, runs and commands."""

import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from PIL import Image
from sklearn.datasets import load_sample_images

import wcdas
from wcdas import cli

# Workers side by side, with one thread each, here and in the processes that tests start: what two
# of them compute is the same to the last bit.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
torch.set_num_threads(1)

# The same examples everywhere, however long they take.
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# These processes are forked from one that has imported what they need.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    [
        "wcdas.api",
        "wcdas.cli",
        "sklearn.datasets",
        "torch._dynamo",
        "torch.utils.tensorboard",
    ]
)

Pictures = Callable[..., Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left alone with them."""
    items.sort(key=lambda item: "test_blocks_run" not in item.name)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    torch.manual_seed(0)


@pytest.fixture
def exact_products() -> Iterator[None]:
    """Convolutions of float32 on a GPU without TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="session")
def photographs() -> dict[str, np.ndarray]:
    china, flower = load_sample_images().images
    return {"china": china, "flower": flower, "roof": china[150:300], "leaf": flower[:200]}


@pytest.fixture(scope="session")
def pictures(photographs: dict[str, np.ndarray]) -> Pictures:
    """Makes a folder of class folders: `pictures(folder, china=9, flower=5)`."""

    def make(folder: Path, *, side: int = 40, **counts: int) -> Path:
        random = np.random.RandomState(0)
        for name, count in counts.items():
            (folder / name).mkdir(parents=True)
            photograph = photographs[name.lower()]
            for i in range(count):
                top, left = (random.randint(length - side) for length in photograph.shape[:2])
                cut = Image.fromarray(photograph[top : top + side, left : left + side])
                cut.save(folder / name / f"{i}.{('jpg', 'png')[i % 2]}")
        return folder

    return make


@pytest.fixture(scope="session")
def mixed_folder(pictures: Pictures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Colour, grey, transparent and turned pictures, a test folder of its own."""
    folder = tmp_path_factory.mktemp("mixed")
    pictures(folder / "train", china=12, flower=8, roof=4)
    pictures(folder / "test", china=5, flower=5, roof=5)
    for name in ("china", "flower", "roof"):
        of_class = folder / "test" / name
        picture = Image.open(of_class / "0.jpg")
        picture.convert("L").save(of_class / "1.png")
        clear = picture.convert("RGBA")
        clear.putalpha(Image.radial_gradient("L").resize(clear.size))
        clear.save(of_class / "3.png")
        exif = Image.Exif()
        exif[0x0112] = 6  # turned by a quarter
        picture.crop((0, 0, 40, 25)).save(of_class / "4.jpg", exif=exif)
    return folder


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pixels of the long-tailed digits as vectors, in an .npy file with labels beside it."""
    folder = tmp_path_factory.mktemp("features")
    split = wcdas.open_dataset("digits-lt").train
    np.save(folder / "pixels.npy", split.pixels.flatten(1).float().numpy() / 255)
    np.save(folder / "pixels_labels.npy", split.labels.numpy())
    return folder / "pixels.npy"


@pytest.fixture(scope="session")
def mixed_run(mixed_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> wcdas.Run:
    """The softmax baseline on `mixed_folder`: its prior is that of training."""
    return wcdas.train(
        mixed_folder,
        "softmax",
        settings={"epochs": 8, "lr": 0.01, "batch_size": 4, "backbone.name": "resnet8"},
        out=tmp_path_factory.mktemp("runs") / "mixed",
        device="cpu",
        workers=0,
    )


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> wcdas.Run:
    """One epoch a stage of wcdas on digits-lt: trained for equally frequent classes."""
    settings = {"epochs": 1, "backbone.name": "resnet8"}
    out = tmp_path_factory.mktemp("runs") / "digits"
    return wcdas.train("digits-lt", "wcdas", settings=settings, out=out, device="cpu")


@pytest.fixture(scope="session")
def patience() -> int:
    """Milliseconds that a browser may take, on a machine with much else to do."""
    return 600_000


@pytest.fixture(scope="module")  # two at a time in one process are refused
def browser(patience: int) -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs chromium on the PATH")
    with sync_playwright() as playwright:
        expect.set_options(timeout=patience)
        launched = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=patience
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def at_a_time() -> Callable[[int, int], AbstractContextManager[None]]:
    """`with at_a_time(rows, classes)`: logits are computed so many together, and never kept."""

    @contextmanager
    def patched(rows: int, classes: int) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"ROWS": rows, "NUMBERS": rows * classes, "KEPT": -1}.items():
                patch.setattr(f"wcdas.evaluation.scores.{name}", value)
            yield

    return patched


@pytest.fixture(scope="session")
def in_processes() -> Callable[..., None]:
    """Runs `work(rank, world, *given)` in `world` processes at a time."""

    def run(work: Callable[..., None], world: int, *given: object) -> None:
        children = [
            FORKED.Process(target=work, args=(rank, world, *given)) for rank in range(world)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(600)  # None, if it hangs
            assert child.exitcode == 0

    return run


class Outcome(NamedTuple):
    """What a command came to."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs `wcdas …` in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("WCDAS_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["wcdas", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return Outcome(int(end.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def refused(command: Callable[..., Outcome]) -> Callable[..., str]:
    """Runs `wcdas …`, which must be refused, and returns the one line it says."""

    def run(*arguments: object) -> str:
        status, out, err = command(*arguments)
        assert (status, out) == (2, "")
        assert err.startswith("wcdas: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert not list(Path.cwd().rglob("*"))
        return err

    return run

"""Pictures of every kind, and runs whose class names are not to be trusted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import wcdas
from wcdas.errors import InputError

ODD_NAMES = ["<img src=x onerror=alert(1)>", '=1+1,"b"\nc|[d](e)*_', "rare"]


@pytest.fixture(scope="session")
def odd_names() -> list[str]:
    return ODD_NAMES


@pytest.fixture(scope="session")
def odd_run(photographs, tmp_path_factory: pytest.TempPathFactory) -> wcdas.Run:
    """Classes of 104, 24 and 6 training images with names of markup, formulas and a line break."""
    folder = tmp_path_factory.mktemp("odd") / 'data "of" <b>odd names'
    random = np.random.RandomState(0)
    sources = zip(ODD_NAMES, ("china", "flower", "roof"), (130, 30, 8), strict=True)
    for name, source, count in sources:
        (folder / name).mkdir(parents=True)
        photograph = photographs[source]
        for i in range(count):
            top, left = (random.randint(length - 40) for length in photograph.shape[:2])
            cut = Image.fromarray(photograph[top : top + 40, left : left + 40])
            cut.save(folder / name / f"{i}.png")
    return wcdas.train(
        folder,
        settings={"epochs": 2, "lr": 0.02, "batch_size": 16, "backbone.name": "resnet8"},
        out=tmp_path_factory.mktemp("runs") / "odd",
        device="cpu",
        workers=0,
        report=False,
    )


@pytest.fixture(scope="session")
def every_kind(photographs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One picture in every form a user may have it in."""
    folder = tmp_path_factory.mktemp("kinds")
    picture = Image.fromarray(photographs["flower"][100:220, 200:360])
    picture.save(folder / "colour.png")
    picture.save(folder / "colour.webp")
    picture.convert("L").save(folder / "grey.png")
    clear = picture.convert("RGBA")
    clear.putalpha(Image.radial_gradient("L").resize(clear.size))
    clear.save(folder / "rgba.png")
    clear.convert("LA").save(folder / "grey-alpha.png")
    sixteen = np.asarray(picture.convert("L")).astype(np.uint16) * 257
    Image.fromarray(sixteen).save(folder / "sixteen.png")
    Image.fromarray(sixteen).save(folder / "sixteen.tif")
    picture.convert("CMYK").save(folder / "cmyk.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    picture.save(folder / "turned.jpg", exif=exif)
    palette = picture.quantize(16)
    palette.save(folder / "palette.png")
    palette.save(folder / "palette-clear.png", transparency=3)
    others = [Image.new("RGB", picture.size, colour) for colour in ("red", "blue")]
    picture.save(folder / "moving.gif", save_all=True, append_images=others, duration=100)
    picture.convert("1").save(folder / "black-and-white.png")
    picture.crop((0, 0, 1, 1)).save(folder / "dot.png")
    picture.crop((0, 0, 160, 1)).save(folder / "thin.png")
    return folder


@pytest.fixture
def refused():
    """Calls something that must be refused in one line of the words given."""

    def check(said: str, call, *arguments: object, **options: object) -> None:
        with pytest.raises(InputError) as caught:
            call(*arguments, **options)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)

    return check


@pytest.fixture(scope="session")
def address(odd_run) -> Iterator[str]:
    """Of a server that takes files of at most 1 MB."""
    with serving(odd_run, "--limit", "1", "--abstain", "0.2") as found:
        yield found


@pytest.fixture
def doubtful_address(odd_run, tmp_path) -> Iterator[str]:
    """Of a server that is hardly ever sure, of a class mix whose file is gone."""
    (tmp_path / "mix.csv").write_text("1\n1\n2\n")
    with serving(odd_run, "--abstain", "0.999", "--prior", str(tmp_path / "mix.csv")) as found:
        (tmp_path / "mix.csv").unlink()
        yield found


@contextmanager
def serving(run: wcdas.Run, *options: str) -> Iterator[str]:
    """The address of `wcdas serve` in a process of its own, which has to end well."""
    with subprocess.Popen(
        [sys.executable, "-m", "wcdas.cli", "serve", str(run.path), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.endswith(" (stop with Ctrl-C)\n")
        yield line.split()[0]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
        assert (process.returncode, errors) == (0, "")

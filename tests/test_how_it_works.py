"""The page that walks a run through the house names functions that a real run arrives at."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch

import wcdas
from wcdas import cli

ROOT = Path(wcdas.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "how-it-works.md").read_text("utf-8")


def walk(heading: str) -> list[str]:
    """The functions of a table, in its order."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [f"{f} {g}" for f, g in re.findall(r"^\| \d+ \| `(.*?)` \| `(.*?)` \|", section, re.M)]


def passed(work: Callable[[], object]) -> list[str]:
    """The functions of the package that a call arrives at, in that order."""
    found: dict[str, None] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            found.setdefault(f"{Path(code.co_filename).relative_to(ROOT)} {code.co_qualname}")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return list(found)


def test_every_file_is_there():
    named = re.findall(r"`([\w/]+\.(?:py|toml))`", PAGE)
    folders = ["", "data/sources"]  # where the page leaves the folder out
    missing = [n for n in named if not any((ROOT / f / n).exists() for f in folders)]
    assert [n for n in missing if n != "run.toml"] == []


def test_a_run_arrives_at_the_functions_in_their_order(pictures, tmp_path, monkeypatch):
    folder = pictures(tmp_path / "images", china=12, flower=4)
    options = ["--set", "epochs=1", "batch_size=4", "backbone.name=resnet8", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["wcdas", "train", str(folder), "--workers", "0", *options])
    monkeypatch.chdir(tmp_path)

    def train():
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main()

    named = walk("A training run")
    assert [name for name in passed(train) if name in named] == named


def test_a_loss_arrives_at_the_functions_in_their_order():
    head, x = wcdas.WCDASHead(64, 100), torch.randn(8, 64)
    found, named = passed(lambda: head.loss(x, torch.arange(8))), walk("The loss of a head")
    assert [name for name in found if name in named] == named
    files = {name.split()[0] for name in found} - {name.split()[0] for name in named}
    assert files <= {"targets.py"}

"""What a run says of the code it was done with."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import wcdas
from wcdas.run import origin


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A small package in a checkout of its own."""
    package = tmp_path / "checkout" / "src" / "wcdas"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1\n")
    monkeypatch.setattr(wcdas, "__file__", str(package / "__init__.py"))
    return package


def git(package: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", "-C", str(package.parents[1]), *who, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def source() -> str:
    return origin.source.__wrapped__()


def commit() -> str:
    return origin.commit.__wrapped__()


def test_source_is_of_the_contents_wherever_they_lie(package, tmp_path, monkeypatch):
    before = source()
    shutil.copytree(package, tmp_path / "elsewhere" / "wcdas")
    monkeypatch.setattr(wcdas, "__file__", str(tmp_path / "elsewhere" / "wcdas" / "__init__.py"))
    assert source() == before
    (tmp_path / "elsewhere" / "wcdas" / "__init__.py").write_text("one = 2\n")
    assert source() != before


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit_of_a_checkout_and_whether_the_package_has_changed(package, tmp_path):
    git(package, "init")
    assert commit() == ""  # without a first commit
    git(package, "add", ".")
    git(package, "commit", "-m", "first")
    head = git(package, "rev-parse", "HEAD")
    assert commit() == head[:12]
    (package.parents[1] / "notes.md").write_text("not the package's\n")
    assert commit() == head[:12]
    (package / "new.py").write_text("two = 2\n")
    assert commit() == f"{head[:12]}+"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_repository_around_an_environment_is_not_that_of_the_package(package, tmp_path):
    subprocess.run(["git", "init", str(tmp_path)], capture_output=True, check=True)
    assert commit() == ""


def test_a_run_keeps_them(digits_run):
    info = tomllib.loads((digits_run.path / "run.toml").read_text())["info"]
    assert info["code"] == origin.code()
    assert info["code"]["source"] == origin.source()
    assert digits_run.metrics["device"] == "cpu"

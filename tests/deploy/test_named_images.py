"""Files, folders and patterns become a list of files in a stable order."""

import os
from pathlib import Path

import pytest

from wcdas.deploy.predicting import find_images


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = ["b/10.jpg", "b/2.JPG", "a/x.png", "a/deep/y.webp", "a/notes.txt", "b/.hidden.jpg",
             ".hidden/z.jpg", "[1].jpg", "c.pdf.txt"]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*named: str) -> list[str]:
    return [path.as_posix() for path in find_images(named)]


def test_a_folder_is_its_pictures_in_natural_order(tree):
    assert found("b") == ["b/2.JPG", "b/10.jpg"]
    assert found(".") == ["[1].jpg", "a/deep/y.webp", "a/x.png", "b/2.JPG", "b/10.jpg"]


def test_the_order_is_that_of_the_names_given(tree):
    assert found("b", "a/x.png", "b/2.JPG") == ["b/2.JPG", "b/10.jpg", "a/x.png", "b/2.JPG"]


def test_a_file_is_taken_whatever_it_is_called(tree):
    assert found("a/notes.txt", "nowhere.jpg") == ["a/notes.txt", "nowhere.jpg"]


def test_patterns(tree):
    assert found("b/*") == ["b/2.JPG", "b/10.jpg"]
    assert found("**/*.png", "**/*.webp") == ["a/x.png", "a/deep/y.webp"]
    assert found("?") == ["a/deep/y.webp", "a/x.png", "b/2.JPG", "b/10.jpg"]
    assert found("**") == ["[1].jpg", "a/deep/y.webp", "a/notes.txt", "a/x.png", "b/2.JPG",
                           "b/10.jpg", "c.pdf.txt"]  # fmt: skip


def test_a_name_that_looks_like_a_pattern(tree):
    assert found("[1].jpg") == ["[1].jpg"]


def test_home(tree, monkeypatch):
    monkeypatch.setenv("HOME", str(tree))
    assert found("~/a/x.png", "~/b/2*") == [f"{tree}/a/x.png", f"{tree}/b/2.JPG"]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ([], "no images are named"),
        (["nowhere.jpg"], "nowhere.jpg does not exist; expected"),
        (["n.jpg", "m.jpg"], "n.jpg does not exist, nor do the 1 others named"),
        (["*.gif"], "no file matches '*.gif'"),
        (["a", "empty"], "the folder empty holds no images"),
    ],
)
def test_nothing_to_look_at(tree, refused, named, said):
    (tree / "empty").mkdir()
    refused(said, find_images, named)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_folder_that_may_not_be_read(tree, refused):
    (tree / "a" / "deep").chmod(0)
    refused("a/deep cannot be read", find_images, ["a"])
